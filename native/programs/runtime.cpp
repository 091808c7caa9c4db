// The runtime's front: what a program registers, errors, and the end.
#include "runtime.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace programs {

// Errors ------------------------------------------------------------------------------------------------------------

struct Unasked {
    std::string call;
    Status error;
    Place place;
    bool discarded; // of a launch by <<<>>>, which returns nothing
};

const char *calling = "";
static thread_local Status last_error;
static std::vector<Unasked> unasked;
static std::map<std::string, uint64_t> lacking;
static std::map<int, Context *> primaries;

Context *primary(int device) {
    Context *&there = primaries[device];
    if (!there || !contexts.count(there))
        there = new_context(device);
    return there;
}

static std::atomic<unsigned> entered; // counts calls

// A GPU begins by itself. Where the program waits without a call, as for what a kernel writes or a callback does, its
// work is done after a while.
static void run_what_waits() {
    for (unsigned before = entered;; before = entered) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        if (entered != before)
            continue;
        Held until_the_end;
        if (entered == before)
            finish_everything();
    }
}

static void begin_to_run() {
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old); // signals are the program's
    std::thread(run_what_waits).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Status enter() {
    if (!start())
        return absent();
    if (!entered++)
        begin_to_run();
    if (current.empty())
        current.push_back(primary(0));
    return context()->failed;
}

Status leave(const char *name, Status status) {
    if (!status || status == NOT_READY)
        return status;
    last_error = status;
    if (unasked.size() < 100 && !told_finding)
        unasked.push_back({name, status, here(), !strncmp(name, "__cudaLaunchKernel", 18)});
    return status;
}

Status missing(const char *name) {
    Held until_the_end;
    lacking[name]++, told_finding = true;
    return leave(name, NOT_SUPPORTED);
}

static Status asked(bool clear) {
    Held until_the_end;
    unasked.clear();
    Status failed = context() ? context()->failed : SUCCESS, found = last_error ? last_error : failed;
    if (clear)
        last_error = SUCCESS;
    return found;
}

API Status cudaGetLastError() { return asked(true); }
API Status cudaPeekAtLastError() { return asked(false); }
API const char *cudaGetErrorName(Status error) {
    return error_of(error) ? error_of(error)->runtime : "unrecognized error code";
}
API const char *cudaGetErrorString(Status error) {
    return error_of(error) ? error_of(error)->text : "unrecognized error code";
}

static int exit_code = -1;

void note_exit() {
    on_exit([](int code, void *) { exit_code = code; }, nullptr);
}

// What is queued still runs; then everything that is known at the end is told.
__attribute__((destructor)) static void end() {
    if (!connected())
        return;
    new Held; // for ever: no other thread goes on
    std::set<Context *> failed;
    for (Context *one : contexts)
        if (one->failed)
            failed.insert(one);
    finish_everything();
    for (Context *one : contexts)
        if (one->failed && !failed.count(one))
            unasked.push_back({"the end of the program", one->failed, {}, true});
    // A program that ended with an error has seen what its calls returned.
    if (exit_code != 0)
        unasked.erase(std::remove_if(unasked.begin(), unasked.end(), [](const Unasked &one) { return !one.discarded; }),
                      unasked.end());
    Message message;
    message.put(exit_code).put(unsigned(lacking.size()));
    for (auto &[name, times] : lacking)
        message.text(name).put(times);
    message.put(unsigned(unasked.size()));
    for (auto &one : unasked)
        message.text(one.call).put(one.error).text(cudaGetErrorName(one.error)).text(text_of(one.place));
    Message never_freed;
    unsigned count = 0;
    for (auto &[slot, one] : memories)
        if (one.kind != VARIABLE && !one.of_graph && !one.context->failed)
            never_freed.put(uint64_t(one.bytes)).text(text_of(one.place)), count++;
    fflush(stdout);
    tell_changes();
    ask(Ask::END, Message{message.put(count).bytes + never_freed.bytes});
}

// What the program registers ----------------------------------------------------------------------------------------

static auto &binaries = *new std::vector<std::unique_ptr<Binary>>;
static auto &functions = *new std::map<const void *, Registered>;
static auto &symbols = *new std::map<const void *, Symbol>;
static auto &handles = *new std::set<const void *>;
static bool managed_waits;

struct Wrapper {
    int magic, version;
    const char *image;
    const char *const *linked; // of -rdc=true: the containers of the translation units
};

// A container says how long it is: of its header at byte 6, of the rest at byte 8.
static std::string image_of(const Wrapper &wrapper) {
    std::string bytes;
    auto add = [&](const char *image) {
        uint16_t head;
        uint64_t rest;
        memcpy(&head, image + 6, 2), memcpy(&rest, image + 8, 8);
        bytes.append(image, head + rest);
    };
    add(wrapper.image);
    if (wrapper.version == 2 && wrapper.linked)
        for (auto one = wrapper.linked; *one; one++)
            add(*one);
    return bytes;
}

static Status module_of(Module **module, Binary *binary) {
    Module *&there = binary->loaded[context()];
    if (!there || !held(there)) {
        there = nullptr;
        if (Status failed = binary->failed[context()])
            return failed;
        std::string image = image_of(*(const Wrapper *)binary->wrapper);
        if (Status status = load(&there, image.data(), image.size(), binary->managed))
            return binary->failed[context()] = status;
    }
    *module = there;
    return SUCCESS;
}

Registered *registered(const void *function) {
    auto found = functions.find(function);
    if (found != functions.end())
        return &found->second;
    return handles.count(function) ? (Registered *)function : nullptr;
}

Status kernel_of(Kernel **kernel, const void *function) {
    Registered *one = registered(function);
    if (!one)
        return INVALID_HANDLE; // as CUDA 13 has it
    Module *module;
    if (Status status = module_of(&module, one->binary))
        return status;
    Status status = find_kernel(kernel, module, one->name.c_str());
    return status == NOT_FOUND ? INVALID_FUNCTION : status;
}

Status symbol_place(Address *address, size_t *bytes, const void *symbol) {
    auto found = symbols.find(symbol);
    if (found == symbols.end())
        return INVALID_SYMBOL;
    Module *module;
    if (Status status = module_of(&module, found->second.binary))
        return status;
    Status status = find_variable(address, bytes, module, found->second.name.c_str());
    return status == NOT_FOUND ? INVALID_SYMBOL : status;
}

Status set_up_managed() {
    if (!managed_waits)
        return SUCCESS;
    managed_waits = false;
    for (auto &[host, one] : symbols) {
        Address address;
        if (!one.managed || *one.managed)
            continue;
        if (Status status = symbol_place(&address, nullptr, host))
            return status;
        *one.managed = memory_at(address)->host;
    }
    return SUCCESS;
}

API void **__cudaRegisterFatBinary(const void *wrapper) {
    Held until_the_end;
    binaries.emplace_back(new Binary{wrapper, false, {}, {}});
    return (void **)binaries.back().get();
}
API void __cudaRegisterFatBinaryEnd(void **) {}
API void __cudaUnregisterFatBinary(void **) {}
API char __cudaInitModule(void **) { return call("__cudaInitModule", set_up_managed) == SUCCESS; }
API void __cudaRegisterFunction(void **binary, const char *host, char *, const char *name, int, void *, void *, void *,
                                void *, int *) {
    Held until_the_end;
    Registered &one = functions[host] = Registered{(Binary *)binary, name};
    handles.insert(&one);
}
API void __cudaRegisterVar(void **binary, char *host, char *, const char *name, int, size_t bytes, int, int) {
    Held until_the_end;
    symbols[host] = Symbol{(Binary *)binary, name, bytes, nullptr};
}
API void __cudaRegisterManagedVar(void **binary, void **host, char *, const char *name, int, size_t bytes, int, int) {
    Held until_the_end;
    symbols[host] = Symbol{(Binary *)binary, name, bytes, host};
    ((Binary *)binary)->managed = managed_waits = true;
}
API void __cudaRegisterHostVar(void **, const char *, char *, size_t) {}

CALL(cudaGetSymbolAddress, (void **address, const void *symbol), symbol_place((Address *)address, nullptr, symbol))
CALL(cudaGetSymbolSize, (size_t *bytes, const void *symbol), symbol_place(nullptr, bytes, symbol))

} // namespace programs
