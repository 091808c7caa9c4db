// The runtime's front end: code that the program registers, errors, and what happens at the end of the program.
#include "runtime.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>

namespace programs {

// Errors ------------------------------------------------------------------------------------------------------------

API const char *cudaGetErrorName(Status error) {
    return error_of(error) ? error_of(error)->runtime : "unrecognized error code";
}
API const char *cudaGetErrorString(Status error) {
    return error_of(error) ? error_of(error)->text : "unrecognized error code";
}

struct Failed { // a call that returned an error
    std::string call;
    Status error;
    CallStack place;
    bool discarded; // whether the program cannot get this error, because a launch by <<<>>> returns no status
    bool refused;   // whether a launch has invalid sizes, which `call` then names
    bool checked = false;
};

const char *calling = "";
std::string launched;
static thread_local Status last_error;
static std::vector<Failed> failures; // whose error the program has not checked, and all launches with invalid sizes
static std::map<std::string, uint64_t> unsupported;
static std::map<int, Context *> primaries;

Context *primary(int device) {
    Context *&entry = primaries[device];
    if (!entry || !contexts.count(entry))
        entry = new_context(device);
    return entry;
}

static std::atomic<unsigned> entered; // how many calls the program has made

// A thread that runs queued work if there was no call for about a second. The program may wait without a CUDA call, for
// example until a callback sets a variable; a GPU would run the work without a further call.
static void run_queued_work() {
    for (unsigned before = entered;; before = entered) {
        std::this_thread::sleep_for(std::chrono::seconds(1));
        if (entered != before)
            continue;
        CallLock until_the_end;
        if (entered == before)
            finish_all_work();
    }
}

static void start_background() {
    sigset_t all, old;
    sigfillset(&all);
    // the new thread must not handle signals, because they are meant for the program's threads
    pthread_sigmask(SIG_SETMASK, &all, &old);
    std::thread(run_queued_work).detach();
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

Status enter() {
    if (!start())
        return absent();
    if (!entered++)
        start_background();
    if (current.empty())
        current.push_back(primary(0));
    return context()->failed;
}

Status leave(const char *name, Status status) {
    if (!status || status == NOT_READY)
        return status;
    last_error = status;
    if (failures.size() < 100 && !finding_reported) {
        bool sizes = !launched.empty() && !refusal.empty();
        failures.push_back({launched.empty() ? name : launched + (sizes ? " (" + refusal + ")" : ""), status,
                            call_stack(), !strncmp(name, "__cudaLaunchKernel", 18), sizes});
    }
    return status;
}

Status missing(const char *name) {
    CallLock until_the_end;
    if (!unsupported[name]++ && start())
        finding("missing", name, {}); // now, because the program may crash before its end
    finding_reported = true;
    return leave(name, NOT_SUPPORTED);
}

static Status checked_error(bool clear) {
    CallLock until_the_end;
    auto other = [](const Failed &failure) { return !failure.refused; };
    failures.erase(std::remove_if(failures.begin(), failures.end(), other), failures.end());
    for (Failed &failure : failures)
        failure.checked = true;
    Status failed = context() ? context()->failed : SUCCESS, error = last_error ? last_error : failed;
    if (clear)
        last_error = SUCCESS;
    return error;
}

API Status cudaGetLastError() { return checked_error(true); }
API Status cudaPeekAtLastError() { return checked_error(false); }

static int exit_code = -1;

void note_exit() {
    on_exit([](int code, void *) { exit_code = code; }, nullptr);
}

// At the end of the program, run the queued work, and then report what is known only now, such as memory that was never
// freed.
__attribute__((destructor)) static void end() {
    if (!connected())
        return;
    new CallLock; // the lock is never released, so all other threads stop at their next call
    std::set<Context *> failed;
    for (Context *owner : contexts)
        if (owner->failed)
            failed.insert(owner);
    finish_all_work();
    for (Context *owner : contexts)
        if (owner->failed && !failed.count(owner))
            failures.push_back({"the end of the program", owner->failed, {}, true, false});
    Message message, unchecked;
    unsigned count = 0;
    // If the program ended with an error code, it probably checked its calls, so only errors that it could not check
    // are reported; an invalid size of a launch may be the reason for its end, and the error does not tell it.
    for (auto &failure : failures)
        if (!failure.checked && (exit_code == 0 || failure.discarded))
            unchecked.text(failure.call).put(failure.error).text(cudaGetErrorName(failure.error)),
                unchecked.text(text_of(failure.place)), count++;
        else if (failure.refused && exit_code != 0)
            finding("refused-launch", failure.call + " returned " + cudaGetErrorName(failure.error), failure.place);
    message.put(exit_code).put(unsigned(unsupported.size()));
    for (auto &[name, times] : unsupported)
        message.text(name).put(times);
    message.put(count).raw(unchecked.bytes.data(), unchecked.bytes.size());
    Message never_freed;
    count = 0;
    for (auto &[slot, memory] : memories)
        if (memory.kind != VARIABLE && !memory.of_graph && !memory.context->failed)
            never_freed.put(uint64_t(memory.bytes)).text(text_of(memory.place)), count++;
    fflush(stdout);
    send_changes();
    send_request(RequestKind::END, Message{message.put(count).bytes + never_freed.bytes});
}

// What the program registers ----------------------------------------------------------------------------------------

static auto &binaries = *new std::vector<std::unique_ptr<Binary>>;
static auto &functions = *new std::map<const void *, Registered>;
static auto &symbols = *new std::map<const void *, Symbol>;
static auto &handles = *new std::set<const void *>;

struct Wrapper {
    int magic, version;
    const char *image;
    const char *const *linked; // for -rdc=true: the containers of the translation units that were linked
};

// Return the bytes of a container of code. The length of its header is at byte 6; the length of the rest is at byte 8.
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
        for (auto linked = wrapper.linked; *linked; linked++)
            add(*linked);
    return bytes;
}

static Status module_of(Module **module, Binary *binary) {
    Module *&loaded = binary->loaded[context()];
    if (!loaded || !find_handle(loaded)) {
        loaded = nullptr;
        if (Status failed = binary->failed[context()])
            return failed;
        std::string image = image_of(*(const Wrapper *)binary->wrapper);
        if (Status status = load(&loaded, image.data(), image.size(), binary->managed))
            return binary->failed[context()] = status;
        for (auto &[host, symbol] : symbols) { // set the addresses of the program's managed variables
            Address address;
            if (symbol.binary != binary || !symbol.managed)
                continue;
            if (Status status = find_variable(&address, nullptr, loaded, symbol.name.c_str()))
                return binary->failed[context()] = status;
            if (*symbol.managed) // after cudaDeviceReset, managed variables keep their values
                memcpy((void *)address, *symbol.managed, symbol.bytes);
            *symbol.managed = (void *)address;
        }
    }
    *module = loaded;
    return SUCCESS;
}

Registered *registered(const void *function) {
    auto entry = functions.find(function);
    if (entry != functions.end())
        return &entry->second;
    return handles.count(function) ? (Registered *)function : nullptr;
}

Status kernel_of(Kernel **kernel, const void *function) {
    Registered *entry = registered(function);
    if (!entry)
        return INVALID_HANDLE; // CUDA 13 returns the same error
    Module *module;
    if (Status status = module_of(&module, entry->binary))
        return status;
    Status status = find_kernel(kernel, module, entry->name.c_str());
    return status == NOT_FOUND ? INVALID_FUNCTION : status;
}

Status symbol_place(Address *address, size_t *bytes, const void *symbol) {
    auto entry = symbols.find(symbol);
    if (entry == symbols.end()) // for a managed variable, the program passes the variable's address
        entry = std::find_if(symbols.begin(), symbols.end(), [&](const auto &known) {
            return known.second.managed && *known.second.managed == symbol;
        });
    if (entry == symbols.end())
        return INVALID_SYMBOL;
    Module *module;
    if (Status status = module_of(&module, entry->second.binary))
        return status;
    Status status = find_variable(address, bytes, module, entry->second.name.c_str());
    return status == NOT_FOUND ? INVALID_SYMBOL : status;
}

API void **__cudaRegisterFatBinary(const void *wrapper) {
    CallLock until_the_end;
    binaries.emplace_back(new Binary{wrapper, false, {}, {}});
    return (void **)binaries.back().get();
}
API void __cudaRegisterFatBinaryEnd(void **) {}
API void __cudaUnregisterFatBinary(void **) {}
// The compiler's code makes this call before host code first uses a managed variable.
API char __cudaInitModule(void **binary) {
    Module *module;
    return call("__cudaInitModule", [&] { return module_of(&module, (Binary *)binary); }) == SUCCESS;
}
API void __cudaRegisterFunction(void **binary, const char *host, char *, const char *name, int, void *, void *, void *,
                                void *, int *) {
    CallLock until_the_end;
    Registered &entry = functions[host] = Registered{(Binary *)binary, name};
    handles.insert(&entry);
}
API void __cudaRegisterVar(void **binary, char *host, char *, const char *name, int, size_t bytes, int, int) {
    CallLock until_the_end;
    symbols[host] = Symbol{(Binary *)binary, name, bytes, nullptr};
}
API void __cudaRegisterManagedVar(void **binary, void **host, char *, const char *name, int, size_t bytes, int, int) {
    CallLock until_the_end;
    symbols[host] = Symbol{(Binary *)binary, name, bytes, host};
    ((Binary *)binary)->managed = true;
}
API void __cudaRegisterHostVar(void **, const char *, char *, size_t) {}

CALL(cudaGetSymbolAddress, (void **address, const void *symbol), symbol_place((Address *)address, nullptr, symbol))
CALL(cudaGetSymbolSize, (size_t *bytes, const void *symbol), symbol_place(nullptr, bytes, symbol))

} // namespace programs
