// Declarations that the files of the runtime's front end share: beginning and ending a call, and registered code.
#pragma once

#include "wire.hpp"

namespace programs {

Status enter();                                // begin a call; returns an error if the call cannot run
Status leave(const char *name, Status status); // end a call, and record its error as the last error
Status missing(const char *name);              // record that the program made a call that is not supported
Context *primary(int device);
extern const char *calling;  // the name of the current call
extern std::string launched; // in a call that launches a kernel: which launch it is; otherwise empty

// Run the body of a call, with a current device, while no other thread runs one. Record the error of the call.
template <class Body> Status call(const char *name, Body body) {
    CallLock until_the_end;
    calling = name, finding_reported = false, launched.clear();
    Status status = enter();
    return leave(name, status ? status : body());
}

// Define a call of the runtime. CALL_PTSZ and CALL_PTDS also define its alias for a thread's own default stream.
#define CALL(name, parameters, result)                                                                                 \
    API Status name parameters {                                                                                       \
        return call(#name, [&]() -> Status { return result; });                                                        \
    }
#define ONCE_MORE(name, suffix) API decltype(name) name##suffix __attribute__((alias(#name)));
#define CALL_PTSZ(name, parameters, result) CALL(name, parameters, result) ONCE_MORE(name, _ptsz)
#define CALL_PTDS(name, parameters, result) CALL(name, parameters, result) ONCE_MORE(name, _ptds)

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
    void **managed; // the program's variable that holds the address of the managed variable
};

// looked up by the program's function or by its handle; null: not registered
Registered *registered(const void *function);
bool is_runtime_12(); // whether the program was built with CUDA 12

struct Dim3 { // dim3
    unsigned x, y, z;
};
Status start_kernel(const void *function, Dim3 grid, Dim3 block, void **parameters, size_t shared, Stream *stream,
                    const unsigned *cluster, bool cooperative, void **extra = nullptr);

struct Extent {
    size_t width, height, depth;
};
struct Offsets { // cudaPos
    size_t x, y, z;
};
struct Pitched { // cudaPitchedPtr
    char *place;
    size_t pitch, width, height;
};
struct Copy3D { // cudaMemcpy3DParms
    Array *from_array;
    Offsets from_offsets;
    Pitched from;
    Array *to_array;
    Offsets to_offsets;
    Pitched to;
    Extent extent;
    int direction;
};
enum Direction { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, EITHER }; // cudaMemcpyKind
struct Box { // the size of a box, in bytes, rows and layers
    size_t sides[3];
};
Status copy_ends(const CopyEnd &target, const CopyEnd &source, const Box &box, Stream *stream, bool wait);
Status end_at(CopyEnd *end, const void *pointer, bool device, bool either, size_t pitch, size_t rows, const Box &box,
              const char *verb);
Status copy(void *to, const void *from, size_t bytes, int direction, Stream *stream, bool wait);
Status copy_symbol(bool to_symbol, const void *symbol, size_t offset, const void *other, size_t bytes, int direction,
                   Stream *stream, bool wait);
Status copy_volume(const Copy3D &how, Stream *stream, bool wait);
Status check_device(const void *pointer, size_t bytes, const char *verb);
Status allocate_in_order(void **pointer, size_t bytes, Stream *handle);
Status free_in_order(const void *pointer, Stream *handle);

Status kernel_of(Kernel **kernel, const void *function);
Status symbol_place(Address *address, size_t *bytes, const void *symbol);

} // namespace programs
