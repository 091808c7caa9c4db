// What the files of the runtime's front share: how a call is entered and left, and what the program registered.
#pragma once

#include "wire.hpp"

namespace programs {

Status enter();                               // what a call returns before it does anything
Status leave(const char *name, Status status); // note an error as the last one
Status missing(const char *name);             // note that the program wanted a call that is not here
Context *primary(int device);
extern const char *calling; // the name of the call

// Run a call: one thread at a time, with a current device, its error noted.
template <class Body> Status call(const char *name, Body body) {
    Held until_the_end;
    calling = name, told_finding = false;
    Status status = enter();
    return leave(name, status ? status : body());
}

// A call of the runtime in one line; ONCE_MORE gives it another name, as of a thread's own default stream.
#define CALL(name, parameters, result)                                                                                 \
    API Status name parameters {                                                                                       \
        return call(#name, [&]() -> Status { return result; });                                                        \
    }
#define ONCE_MORE(name, suffix) API decltype(name) name##suffix __attribute__((alias(#name)));

struct Binary { // a fat binary that the program registered
    const void *wrapper;
    bool managed = false;
    std::map<Context *, Module *> loaded;
    std::map<Context *, Status> failed;
};

struct Registered { // a kernel of the program
    Binary *binary;
    std::string name;
};

struct Symbol { // a variable of the program
    Binary *binary;
    std::string name;
    size_t bytes;
    void **managed; // where the program keeps its address
};

Registered *registered(const void *function); // by the program's function or by its handle; null: none
Status kernel_of(Kernel **kernel, const void *function);
Status symbol_place(Address *address, size_t *bytes, const void *symbol);
Status set_up_managed(); // give the program's managed variables their addresses

} // namespace programs
