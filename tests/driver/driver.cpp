// A CUDA driver without a GPU: libcuda.so.1 for programs in this Python process, whose launches run in the simulator.
//
// Device memory is host memory, and the address of an allocation is the simulator's: 2^40 bytes of address space each,
// so that a pointer means the same wherever a kernel finds it. Streams are queues: what is queued runs when somebody
// waits for it. Time is invented: each piece of work says how many nanoseconds it takes. What needs Python (loading a
// module, launching) is called back; host.py sets these callbacks when cuInit starts it in the process's interpreter.
//
// Every call is listed once, by CALL (in a context), CALL_STARTED (after cuInit) or CALL_ANYTIME. These let one thread in
// at a time, count the call, and give it the fault that CUDABENCH_DRIVER_FAIL asks for. A call of the list `missing.inc`
// that stands nowhere here says its name and returns CUDA_ERROR_NOT_SUPPORTED.
//
// What is queued may run long after it was asked for. So it holds what it needs: events, streams and kernels by shared
// pointers, memory by its address, which is looked up again, and what comes from the host's ordinary memory as a copy.
// While Python is called back it may collect garbage and free memory here: that waits until the outermost call ends.

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

typedef int Status;
typedef unsigned long long Address;

enum : Status {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
    ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701, ALREADY_REGISTERED = 712, NOT_REGISTERED = 713, LAUNCH_FAILED = 719,
    TOO_LARGE = 720, NOT_SUPPORTED = 801, CAPTURING = 900, CAPTURE_UNJOINED = 904, CAPTURED_EVENT = 907, UNKNOWN = 999,
    INTERRUPTED = -1,  // by host.py: Ctrl-C came while a kernel ran
};

const int SLOT_BITS = 40;
const size_t SLOT = size_t(1) << SLOT_BITS;
const int FRESH_SLOTS = 4096;  // addresses that are given before one is given again
enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_ARRAY = 3, MEMORY_UNIFIED = 4 };  // CUmemorytype

// What host.py sets ----------------------------------------------------------------------------------------------------

struct Card {
    char name[128];
    int attributes[256];  // -1: unknown
    size_t memory;
    double bytes_per_ns;
    unsigned char uuid[16];
};

struct Function {
    int attributes[16];  // CUfunction_attribute
    int parameters;
    unsigned offsets[256], sizes[256];
};

struct Launch {
    int module;
    const char *name;
    unsigned sides[6], cluster[3], shared;
    const void *parameters;
    size_t parameter_bytes;
};

struct Callbacks {
    int (*load)(int module, const void *image, size_t bytes, int first_slot, int *slots);
    int (*unload)(int module);
    int (*find)(int module, const char *name, Function *function);
    int (*variable)(int module, const char *name, Address *address, void **host, size_t *bytes);
    int (*launch)(const Launch *launch, double *nanoseconds);
    int (*texture)(Address handle, const void *resource, const void *texture, void *host, Address place, size_t bytes,
                   const size_t *extents, unsigned flags);
    int (*forget)(int slot);
    int (*tensor_map)(void *map, int type, unsigned rank, Address place, const void *sizes, const void *strides,
                      const void *box, const void *steps, int swizzle, int fill);
};

static Callbacks callbacks;
static std::vector<Card> cards;

// State ----------------------------------------------------------------------------------------------------------------

struct Context;

enum Kind { DEVICE, PINNED, REGISTERED, VARIABLE };  // REGISTERED: the host's own, page-locked later

struct Memory {
    char *host;
    size_t bytes;
    Context *context;
    Kind kind;
    bool of_host() const { return kind == PINNED || kind == REGISTERED; }
};

struct Work {
    std::function<Status(double *)> run;    // null: a wait
    std::shared_ptr<struct Stream> other;   // whose work up to `until` comes first
    unsigned long long until = 0;
};
typedef std::shared_ptr<std::vector<Work>> Capture;

struct Stream {
    Context *context;
    bool blocking;  // waits for the default stream, and is waited for by it
    std::deque<std::pair<unsigned long long, Work>> queue;
    Capture captured;
};

struct Event {
    Context *context;
    bool timed;
    std::shared_ptr<Stream> stream;  // where it was recorded last, by the work of this number
    unsigned long long until = 0;
    double at = -1;
    Capture captured;
};

struct Context {  // never deleted: what is queued and events name it
    int device;
    Status failed = SUCCESS;
    std::shared_ptr<Stream> everything;  // the default stream
    std::set<std::shared_ptr<Stream>> streams;
    double now = 0;  // nanoseconds
    int holders = 1;
};

struct Module {
    int number, first_slot, slots;
    Context *context;
    std::map<std::string, struct Kernel *> kernels;
};

struct Kernel {
    Module *module;
    std::string name;
    Function told;
    int dynamic_shared;
    bool large_clusters = false;
};

struct Array {
    Address place;
    size_t extents[3];
    int format;
    unsigned channels, flags;
    size_t row() const;
};

struct Graph {
    std::vector<Work> works;
};

template <class T> static std::map<T *, std::shared_ptr<T>> live;  // what handles of the program's stand for

template <class T> static T *keep(T *made) {
    live<T>[made] = std::shared_ptr<T>(made);
    return made;
}
template <class T> static std::shared_ptr<T> held(T *handle) {
    auto found = live<T>.find(handle);
    return found == live<T>.end() ? nullptr : found->second;
}

static std::map<int, Memory> memories;          // by slot
static std::set<int> reserved;                  // slots of modules' variables
static thread_local std::vector<Context *> current;
static Context *running;                        // whose work is being done
static std::set<Context *> contexts;
static std::map<int, Context *> primaries;
static std::map<std::string, int> calls;
static unsigned long long sequence;
static int next_slot = 1, next_module;
static Address next_handle = Address(1) << 35;
static bool started, interrupted, has_objects;
static size_t most_queued = 1024;               // works of a stream; one more waits until there is room, as on a GPU
static uint64_t chance = 88172645463325252ull;

static Context *context() { return current.empty() ? nullptr : current.back(); }

// Python ---------------------------------------------------------------------------------------------------------------

template <class T> static T python(const char *name) { return (T)dlsym(RTLD_DEFAULT, name); }

static bool python_lives() {
    static auto initialized = python<int (*)()>("Py_IsInitialized");
    static auto finalizing = python<int (*)()>("Py_IsFinalizing") ? python<int (*)()>("Py_IsFinalizing")
                                                                  : python<int (*)()>("_Py_IsFinalizing");
    return initialized && initialized() && !(finalizing && finalizing());
}

static std::recursive_mutex one_at_a_time;
static int depth;  // of calls in each other: 2 while Python, called back, calls
static std::vector<std::function<void()>> later;

struct Held {
    Held() {
        if (!one_at_a_time.try_lock()) {
            // Whoever has it may be about to call Python, for which it needs the lock that this thread may hold.
            static auto has_lock = python<int (*)()>("PyGILState_Check");
            static auto leave = python<void *(*)()>("PyEval_SaveThread");
            static auto take = python<void (*)(void *)>("PyEval_RestoreThread");
            void *state = has_lock && has_lock() ? leave() : nullptr;
            one_at_a_time.lock();
            if (state) take(state);
        }
        depth++;
    }
    ~Held() {
        while (depth == 1 && !later.empty()) {
            auto work = std::move(later.back());
            later.pop_back();
            work();
        }
        depth--;
        one_at_a_time.unlock();
    }
};

// Do what takes away something that work may use once no work is being done.
static Status at_rest(const std::function<void()> &work) {
    if (depth > 1) later.push_back(work);
    else work();
    return context() ? context()->failed : SUCCESS;
}

// Calls ----------------------------------------------------------------------------------------------------------------

static bool sticky(Status status) { return status == 700 || status == 710 || (714 <= status && status <= 719); }

// NAME:COUNT=STATUS, several separated by blanks; COUNT+ for that call and all behind it.
static Status enter(const char *name) {
    static const char *asked = getenv("CUDABENCH_DRIVER_FAIL");
    int count = ++calls[name];
    std::istringstream faults(asked ? asked : "");
    for (std::string fault; faults >> fault;) {
        size_t colon = fault.find(':'), equal = fault.find('=');
        if (colon == std::string::npos || equal == std::string::npos || fault.substr(0, colon) != name) continue;
        int wanted = std::atoi(fault.c_str() + colon + 1), status = std::atoi(fault.c_str() + equal + 1);
        if (count != wanted && !(fault[equal - 1] == '+' && count > wanted)) continue;
        if (sticky(status) && context()) context()->failed = status;
        return status;
    }
    return SUCCESS;
}

static Status after_start(const char *name) {
    if (Status status = enter(name)) return status;
    return started ? SUCCESS : NOT_INITIALIZED;
}

static Status in_context(const char *name) {
    if (Status status = after_start(name)) return status;
    return context() ? context()->failed : INVALID_CONTEXT;
}

#define CALL_BY(enters, name, ...)                  \
    extern "C" Status name(__VA_ARGS__) {           \
        Held until_the_end;                         \
        if (Status status = enters(#name)) return status;
#define CALL_ANYTIME(name, ...) CALL_BY(enter, name, __VA_ARGS__)
#define CALL_STARTED(name, ...) CALL_BY(after_start, name, __VA_ARGS__)
#define CALL(name, ...) CALL_BY(in_context, name, __VA_ARGS__)
#define END return SUCCESS; }

// Memory ---------------------------------------------------------------------------------------------------------------

static size_t used(int device) {
    size_t sum = 0;
    for (auto &one : memories)
        sum += one.second.kind == DEVICE && one.second.context->device == device ? one.second.bytes : 0;
    return sum;
}

static int free_slot() {
    if (next_slot <= FRESH_SLOTS) return next_slot++;
    int slot = 1;  // the lowest that is free again
    while (memories.count(slot) || reserved.count(slot)) slot++;
    next_slot = std::max(next_slot, slot + 1);
    return slot;
}

static Status allocate(Address *address, size_t bytes, Kind kind) {
    int device = context()->device;
    if (!address || !bytes) return INVALID_VALUE;
    if (bytes > SLOT / 2 || (kind == DEVICE && used(device) + bytes > cards[device].memory)) return OUT_OF_MEMORY;
    void *host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) return OUT_OF_MEMORY;
    // A GPU's memory is as others left it.
    if (kind == DEVICE) memset(host, 0xA5, std::min(bytes, size_t(64) << 20));
    int slot = free_slot();
    memories[slot] = Memory{(char *)host, bytes, context(), kind};
    *address = Address(slot) << SLOT_BITS;
    return SUCCESS;
}

static void release(int slot) {
    auto found = memories.find(slot);
    if (found == memories.end()) return;
    if (has_objects && python_lives()) callbacks.forget(slot);
    if (found->second.kind == DEVICE || found->second.kind == PINNED) munmap(found->second.host, found->second.bytes);
    memories.erase(found);
}

// The host's memory behind bytes of the device, null where they do not all lie in one allocation.
static char *host_of(Address address, size_t bytes) {
    auto found = memories.find(int(address >> SLOT_BITS));
    size_t offset = address & (SLOT - 1);
    if (found == memories.end() || offset > found->second.bytes || bytes > found->second.bytes - offset) return nullptr;
    return found->second.host + offset;
}

// The slot of page-locked memory of the host, 0 for memory that is not.
static int pinned_slot(const void *host) {
    for (auto &one : memories)
        if (one.second.of_host() && one.second.host <= (char *)host && (char *)host < one.second.host + one.second.bytes)
            return one.first;
    return 0;
}

// Streams --------------------------------------------------------------------------------------------------------------

// The stream of a handle, null where there is none; 0 to 2 stand for the default stream.
static std::shared_ptr<Stream> stream_of(Stream *stream) {
    return (size_t)stream > 2 ? held(stream) : context()->everything;
}

static void step(Stream *stream);

static void drain(Stream *stream, unsigned long long until) {
    while (!stream->queue.empty() && stream->queue.front().first <= until) step(stream);
}

// Run the first work of a stream, behind what it has to wait for.
static void step(Stream *stream) {
    Context *in = stream->context;
    auto [number, work] = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (stream == in->everything.get()) {
        for (auto &other : in->streams)
            if (other->blocking) drain(other.get(), number);
    } else if (stream->blocking) {
        drain(in->everything.get(), number);
    }
    if (work.other) drain(work.other.get(), work.until);
    if (!work.run || in->failed || !python_lives()) return;
    double nanoseconds = 0;
    running = in;
    in->failed = work.run(&nanoseconds);
    in->now += nanoseconds;
}

// What a call that waited returns; after Ctrl-C nothing, so that Python's own exception is what the program sees.
static Status waited(Context *in) {
    if (!interrupted) return in->failed;
    interrupted = false;
    static auto interrupt = python<void (*)()>("PyErr_SetInterrupt");
    interrupt();
    return SUCCESS;
}

static Status wait_for(Stream *stream, unsigned long long until) {
    if (stream->captured) return CAPTURING;
    if (depth == 1) drain(stream, until);
    return waited(stream->context);
}

static Status wait_for_all(Context *in) {
    if (depth > 1) return in->failed;
    drain(in->everything.get(), sequence);
    for (auto &stream : in->streams) drain(stream.get(), sequence);
    for (auto at = in->streams.begin(); at != in->streams.end();)  // those that were destroyed meanwhile
        at = live<Stream>.count(at->get()) ? std::next(at) : in->streams.erase(at);
    return waited(in);
}

static void finish_everything() {
    for (Context *in : contexts) wait_for_all(in);
}

static Status queue(const std::shared_ptr<Stream> &stream, Work work) {
    if (stream->captured) {
        stream->captured->push_back(std::move(work));
        return SUCCESS;
    }
    if (stream->queue.size() >= most_queued && depth == 1) step(stream.get());
    stream->queue.emplace_back(++sequence, std::move(work));
    return SUCCESS;
}

static double moving(const Stream &stream, size_t bytes) {
    return 1000 + bytes / cards[stream.context->device].bytes_per_ns;
}

// Where a copy begins or ends: memory of the device or, where that is 0, of the host; the bytes from row to row and the
// rows from layer to layer.
struct End {
    Address device;
    char *host;
    size_t pitch, rows;
    char *first(const size_t *box) const {  // null where the box does not lie in one allocation
        return device ? host_of(device, ((box[2] - 1) * rows + box[1] - 1) * pitch + box[0]) : host;
    }
};

static void move_box(char *to, size_t to_pitch, size_t to_rows, const char *from, const End &source, const size_t *box) {
    for (size_t z = 0; z < box[2]; z++)
        for (size_t y = 0; y < box[1]; y++)
            memmove(to + (z * to_rows + y) * to_pitch, from + (z * source.rows + y) * source.pitch, box[0]);
}

// Copy a box of bytes, rows and layers. Ordinary memory of the host is read at once, and written before this returns.
static Status copy_box(End to, End from, size_t width, size_t height, size_t depth_, Stream *handle, bool wait) {
    struct Box { size_t sides[3]; } box{{width, height, depth_}};
    if (!width || !height || !depth_) return SUCCESS;
    auto stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (!to.first(box.sides) || !from.first(box.sides)) return INVALID_VALUE;
    std::shared_ptr<std::vector<char>> copied;
    if (!from.device && !pinned_slot(from.host)) {
        copied = std::make_shared<std::vector<char>>(width * height * depth_);
        move_box(copied->data(), width, height, from.host, from, box.sides);
        from = End{0, copied->data(), width, height};
    }
    wait = wait || (!to.device && !pinned_slot(to.host) && !stream->captured);
    double takes = moving(*stream, width * height * depth_);
    queue(stream, Work{[=](double *time) -> Status {
        (void)copied;
        char *target = to.first(box.sides), *source = from.first(box.sides);
        if (!target || !source) return ILLEGAL_ADDRESS;  // freed since: of a graph
        move_box(target, to.pitch, to.rows, source, from, box.sides);
        *time = takes;
        return SUCCESS;
    }, nullptr});
    return wait ? wait_for(stream.get(), sequence) : SUCCESS;
}

static Status fill(Address at, size_t pitch, const void *pattern, size_t width, size_t count, size_t rows, Stream *handle) {
    if (!count || !rows) return SUCCESS;
    auto stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    size_t reach;
    if (__builtin_mul_overflow(width, count, &reach) || __builtin_add_overflow(reach, (rows - 1) * pitch, &reach))
        return INVALID_VALUE;
    if (!host_of(at, reach) || at % width) return INVALID_VALUE;
    std::string bytes((const char *)pattern, width);
    double takes = moving(*stream, width * count * rows);
    return queue(stream, Work{[=](double *time) -> Status {
        char *to = host_of(at, reach);
        if (!to) return ILLEGAL_ADDRESS;
        for (size_t row = 0; row < rows; row++, to += pitch) {
            if (width == 1) memset(to, bytes[0], count);
            else for (size_t i = 0; i < count; i++) memcpy(to + i * width, bytes.data(), width);
        }
        *time = takes;
        return SUCCESS;
    }, nullptr});
}

// What host.py calls ---------------------------------------------------------------------------------------------------

extern "C" void simulated_start(const Callbacks *functions, const Card *there, int count) {
    callbacks = *functions;
    cards.assign(there, there + count);
}

// The memories that the kernel which is run can reach; returns how many there are.
extern "C" int simulated_memories(int *slots, void **hosts, size_t *sizes, int room) {
    int count = 0;
    for (auto &one : memories) {
        if (!one.second.of_host() && one.second.context != running) continue;
        if (count < room) slots[count] = one.first, hosts[count] = one.second.host, sizes[count] = one.second.bytes;
        count++;
    }
    return count;
}

// How often a call was made.
extern "C" int simulated_calls(const char *name) {
    Held one;
    return calls[name];
}

// Start and devices ----------------------------------------------------------------------------------------------------

CALL_ANYTIME(cuInit, unsigned)
    static Status found = UNKNOWN;
    if (started) return found;
    auto ensure = python<int (*)()>("PyGILState_Ensure");
    auto leave = python<void (*)(int)>("PyGILState_Release");
    auto run = python<int (*)(const char *, void *)>("PyRun_SimpleStringFlags");
    if (!python_lives() || !ensure || !leave || !run) {
        fprintf(stderr, "the simulated driver works in a Python process only\n");
        return NO_DEVICE;
    }
    if (const char *room = getenv("CUDABENCH_DRIVER_QUEUE")) most_queued = std::max(1, std::atoi(room));
    started = true;
    int state = ensure();
    int wrong = run("import importlib.util as _u, sys\n"
                    "_s = _u.spec_from_file_location('simulated_driver', '" HOST "')\n"
                    "_m = sys.modules['simulated_driver'] = _u.module_from_spec(_s)\n"
                    "_s.loader.exec_module(_m)\n"
                    "_m.start()\n"
                    "del _u, _s, _m\n", nullptr);
    leave(state);
    return found = wrong ? UNKNOWN : cards.empty() ? NO_DEVICE : SUCCESS;
}

static bool no_device(int device) { return device < 0 || device >= int(cards.size()); }
#define OF_DEVICE if (no_device(device)) return INVALID_DEVICE;

CALL_ANYTIME(cuDriverGetVersion, int *version) *version = 13000; END
CALL_STARTED(cuDeviceGetCount, int *count) *count = int(cards.size()); END
CALL_STARTED(cuDeviceGet, int *found, int device) OF_DEVICE *found = device; END
CALL_STARTED(cuDeviceGetName, char *name, int room, int device) OF_DEVICE
    snprintf(name, room, "%s", cards[device].name);
END
CALL_STARTED(cuDeviceGetAttribute, int *value, int attribute, int device) OF_DEVICE
    if (attribute < 0 || attribute >= 256 || cards[device].attributes[attribute] < 0) {
        fprintf(stderr, "the simulated driver does not know device attribute %d\n", attribute);
        return INVALID_VALUE;
    }
    *value = cards[device].attributes[attribute];
END
CALL_STARTED(cuDeviceComputeCapability, int *major, int *minor, int device) OF_DEVICE
    *major = cards[device].attributes[75];
    *minor = cards[device].attributes[76];
END
CALL_STARTED(cuDeviceTotalMem_v2, size_t *bytes, int device) OF_DEVICE *bytes = cards[device].memory; END
CALL_STARTED(cuDeviceGetUuid, unsigned char *uuid, int device) OF_DEVICE memcpy(uuid, cards[device].uuid, 16); END
CALL_STARTED(cuDeviceGetUuid_v2, unsigned char *uuid, int device) OF_DEVICE memcpy(uuid, cards[device].uuid, 16); END
CALL_STARTED(cuDeviceGetPCIBusId, char *text, int room, int device) OF_DEVICE
    snprintf(text, room, "0000:%02x:00.0", device);
END
CALL_STARTED(cuDeviceCanAccessPeer, int *can, int, int) *can = 0; END

static const std::map<int, std::pair<const char *, const char *>> ERRORS = {
    {1, {"CUDA_ERROR_INVALID_VALUE", "invalid argument"}},
    {2, {"CUDA_ERROR_OUT_OF_MEMORY", "out of memory"}},
    {3, {"CUDA_ERROR_NOT_INITIALIZED", "initialization error"}},
    {100, {"CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"}},
    {101, {"CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"}},
    {200, {"CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"}},
    {201, {"CUDA_ERROR_INVALID_CONTEXT", "invalid device context"}},
    {209, {"CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"}},
    {400, {"CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"}},
    {500, {"CUDA_ERROR_NOT_FOUND", "named symbol not found"}},
    {600, {"CUDA_ERROR_NOT_READY", "device not ready"}},
    {700, {"CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"}},
    {701, {"CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"}},
    {710, {"CUDA_ERROR_ASSERT", "device-side assert triggered"}},
    {712, {"CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED", "part or all of the requested memory range is already mapped"}},
    {713, {"CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED", "pointer does not correspond to a registered memory region"}},
    {715, {"CUDA_ERROR_ILLEGAL_INSTRUCTION", "an illegal instruction was encountered"}},
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {720, {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
    {900, {"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"}},
    {904, {"CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"}},
    {907, {"CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"}},
    {999, {"CUDA_ERROR_UNKNOWN", "unknown error"}},
};
CALL_ANYTIME(cuGetErrorName, int error, const char **text)
    *text = ERRORS.count(error) ? ERRORS.at(error).first : nullptr;
    if (!*text) return INVALID_VALUE;
END
CALL_ANYTIME(cuGetErrorString, int error, const char **text)
    *text = ERRORS.count(error) ? ERRORS.at(error).second : nullptr;
    if (!*text) return INVALID_VALUE;
END

// Contexts -------------------------------------------------------------------------------------------------------------

static Context *new_context(int device) {
    Context *made = new Context;
    made->device = device;
    made->everything.reset(new Stream{made, false, {}, nullptr});
    contexts.insert(made);
    return made;
}

template <class T> static void forget_all(Context *of) {
    for (auto at = live<T>.begin(); at != live<T>.end();)
        at = at->second->context == of ? live<T>.erase(at) : std::next(at);
}

static void unload(Module *module) {
    for (auto &one : module->kernels) live<Kernel>.erase(one.second);
    for (int slot = module->first_slot; slot < module->first_slot + module->slots; slot++) {
        release(slot);
        reserved.erase(slot);
    }
    if (python_lives()) callbacks.unload(module->number);
    live<Module>.erase(module);
}

// Run what is queued, then free all that is the context's.
static void destroy(Context *gone) {
    if (!contexts.count(gone)) return;
    finish_everything();
    contexts.erase(gone);
    for (auto at = live<Module>.begin(); at != live<Module>.end();) {
        Module *module = (at++)->first;
        if (module->context == gone) unload(module);
    }
    forget_all<Stream>(gone), forget_all<Event>(gone);
    gone->streams.clear();
    for (auto at = memories.begin(); at != memories.end();) {
        auto [slot, memory] = *at++;
        if (memory.context == gone) release(slot);
    }
    current.erase(std::remove(current.begin(), current.end(), gone), current.end());
}

static Status create_context(Context **made, int device) {
    OF_DEVICE
    current.push_back(*made = new_context(device));
    return SUCCESS;
}
CALL_STARTED(cuCtxCreate_v4, Context **made, void *, unsigned, int device) return create_context(made, device); END
CALL_STARTED(cuCtxCreate_v2, Context **made, unsigned, int device) return create_context(made, device); END
CALL_STARTED(cuCtxAttach, Context **found, unsigned)
    if (!context()) return INVALID_CONTEXT;
    context()->holders++;
    *found = context();
END
static Status detach(Context *one) {
    if (!contexts.count(one)) return INVALID_CONTEXT;
    if (--one->holders > 0) return SUCCESS;
    return at_rest([=] { destroy(one); });
}
CALL_STARTED(cuCtxDetach, Context *one) return detach(one); END
CALL_STARTED(cuCtxPushCurrent_v2, Context *pushed)
    if (!contexts.count(pushed)) return INVALID_CONTEXT;
    current.push_back(pushed);
END
CALL_STARTED(cuCtxPopCurrent_v2, Context **popped)
    if (!context()) return INVALID_CONTEXT;
    if (popped) *popped = context();
    current.pop_back();
END
CALL_STARTED(cuCtxGetCurrent, Context **found) *found = context(); END
CALL_STARTED(cuCtxSetCurrent, Context *set)
    if (set && !contexts.count(set)) return INVALID_CONTEXT;
    if (!current.empty()) current.pop_back();
    if (set) current.push_back(set);
END
CALL_STARTED(cuCtxGetDevice, int *device)
    if (!context()) return INVALID_CONTEXT;
    *device = context()->device;
END
CALL_STARTED(cuCtxGetApiVersion, Context *, unsigned *version) *version = 13000; END
CALL_STARTED(cuDevicePrimaryCtxSetFlags_v2, int device, unsigned) OF_DEVICE END
CALL_STARTED(cuDevicePrimaryCtxRetain, Context **found, int device) OF_DEVICE
    Context *&there = primaries[device];
    if (there) there->holders++;
    else there = new_context(device);
    *found = there;
END
CALL_STARTED(cuDevicePrimaryCtxRelease_v2, int device) OF_DEVICE
    Context *there = primaries[device];
    if (!there) return INVALID_CONTEXT;
    if (there->holders == 1) primaries.erase(device);
    return detach(there);
END
CALL(cuCtxSynchronize) return wait_for_all(context()); END
CALL(cuCtxResetPersistingL2Cache) END
CALL(cuCtxGetLimit, size_t *value, int) *value = 0; END
CALL(cuCtxSetLimit, int, size_t) END
CALL(cuCtxGetCacheConfig, int *value) *value = 0; END
CALL(cuCtxSetCacheConfig, int) END
CALL(cuCtxGetSharedMemConfig, int *value) *value = 1; END
CALL(cuCtxSetSharedMemConfig, int) END

// Memory ---------------------------------------------------------------------------------------------------------------

CALL(cuMemAlloc_v2, Address *address, size_t bytes) return allocate(address, bytes, DEVICE); END
CALL(cuMemAllocPitch_v2, Address *address, size_t *pitch, size_t width, size_t height, unsigned element)
    if (!width || !height || (element != 4 && element != 8 && element != 16)) return INVALID_VALUE;
    if (width > SLOT || height > SLOT) return OUT_OF_MEMORY;
    *pitch = (width + 511) / 512 * 512;
    return height > SLOT / *pitch ? OUT_OF_MEMORY : allocate(address, *pitch * height, DEVICE);
END
CALL_STARTED(cuMemFree_v2, Address address)
    auto found = memories.find(int(address >> SLOT_BITS));
    if (found == memories.end() || found->second.kind != DEVICE || address & (SLOT - 1)) return INVALID_VALUE;
    return at_rest([slot = found->first] { finish_everything(), release(slot); });
END
CALL(cuMemGetInfo_v2, size_t *left, size_t *all)
    *all = cards[context()->device].memory;
    *left = *all - used(context()->device);
END
CALL(cuMemGetAddressRange_v2, Address *base, size_t *bytes, Address address)
    if (!host_of(address, 1)) return NOT_FOUND;
    int slot = int(address >> SLOT_BITS);
    if (base) *base = Address(slot) << SLOT_BITS;
    if (bytes) *bytes = memories[slot].bytes;
END
CALL(cuMemHostAlloc, void **host, size_t bytes, unsigned)
    Address address;
    if (Status status = allocate(&address, bytes, PINNED)) return status;
    *host = memories[int(address >> SLOT_BITS)].host;
END
CALL_STARTED(cuMemFreeHost, void *host)
    int slot = pinned_slot(host);
    if (!slot || memories[slot].kind != PINNED || memories[slot].host != host) return INVALID_VALUE;
    return at_rest([slot] { finish_everything(), release(slot); });
END
CALL(cuMemHostRegister_v2, void *host, size_t bytes, unsigned)
    if (!host || !bytes) return INVALID_VALUE;
    if (pinned_slot(host) || pinned_slot((char *)host + bytes - 1)) return ALREADY_REGISTERED;
    memories[free_slot()] = Memory{(char *)host, bytes, context(), REGISTERED};
END
CALL_STARTED(cuMemHostUnregister, void *host)
    int slot = pinned_slot(host);
    if (!slot || memories[slot].kind != REGISTERED || memories[slot].host != host) return NOT_REGISTERED;
    return at_rest([slot] { finish_everything(), release(slot); });
END
CALL(cuMemHostGetDevicePointer_v2, Address *address, void *host, unsigned)
    int slot = pinned_slot(host);
    if (!slot) return INVALID_VALUE;
    *address = (Address(slot) << SLOT_BITS) + ((char *)host - memories[slot].host);
END
CALL(cuMemHostGetFlags, unsigned *flags, void *host)
    if (!pinned_slot(host)) return INVALID_VALUE;
    *flags = 2;
END

static Status copy(Address to, char *to_host, Address from, const char *from_host, size_t bytes, Stream *stream, bool wait) {
    return copy_box(End{to, to_host, 0, 0}, End{from, (char *)from_host, 0, 0}, bytes, 1, 1, stream, wait);
}
// Synchronous copies wait for the default stream, which waits for all others that do not say otherwise.
CALL(cuMemcpyHtoD_v2, Address to, const char *from, size_t bytes) return copy(to, 0, 0, from, bytes, 0, true); END
CALL(cuMemcpyDtoH_v2, char *to, Address from, size_t bytes) return copy(0, to, from, 0, bytes, 0, true); END
CALL(cuMemcpyDtoD_v2, Address to, Address from, size_t bytes) return copy(to, 0, from, 0, bytes, 0, false); END
CALL(cuMemcpyHtoDAsync_v2, Address to, const char *from, size_t bytes, Stream *stream)
    return copy(to, 0, 0, from, bytes, stream, false);
END
CALL(cuMemcpyDtoHAsync_v2, char *to, Address from, size_t bytes, Stream *stream)
    return copy(0, to, from, 0, bytes, stream, false);
END
CALL(cuMemcpyDtoDAsync_v2, Address to, Address from, size_t bytes, Stream *stream)
    return copy(to, 0, from, 0, bytes, stream, false);
END
CALL(cuMemsetD8_v2, Address at, unsigned char value, size_t count)
    return fill(at, 0, &value, sizeof value, count, 1, nullptr);
END
CALL(cuMemsetD8Async, Address at, unsigned char value, size_t count, Stream *stream)
    return fill(at, 0, &value, sizeof value, count, 1, stream);
END
CALL(cuMemsetD2D8_v2, Address at, size_t pitch, unsigned char value, size_t width, size_t rows)
    return fill(at, pitch, &value, sizeof value, width, rows, nullptr);
END
CALL(cuMemsetD2D8Async, Address at, size_t pitch, unsigned char value, size_t width, size_t rows, Stream *stream)
    return fill(at, pitch, &value, sizeof value, width, rows, stream);
END
CALL(cuMemsetD16_v2, Address at, unsigned short value, size_t count)
    return fill(at, 0, &value, sizeof value, count, 1, nullptr);
END
CALL(cuMemsetD16Async, Address at, unsigned short value, size_t count, Stream *stream)
    return fill(at, 0, &value, sizeof value, count, 1, stream);
END
CALL(cuMemsetD2D16_v2, Address at, size_t pitch, unsigned short value, size_t width, size_t rows)
    return fill(at, pitch, &value, sizeof value, width, rows, nullptr);
END
CALL(cuMemsetD2D16Async, Address at, size_t pitch, unsigned short value, size_t width, size_t rows, Stream *stream)
    return fill(at, pitch, &value, sizeof value, width, rows, stream);
END
CALL(cuMemsetD32_v2, Address at, unsigned value, size_t count)
    return fill(at, 0, &value, sizeof value, count, 1, nullptr);
END
CALL(cuMemsetD32Async, Address at, unsigned value, size_t count, Stream *stream)
    return fill(at, 0, &value, sizeof value, count, 1, stream);
END
CALL(cuMemsetD2D32_v2, Address at, size_t pitch, unsigned value, size_t width, size_t rows)
    return fill(at, pitch, &value, sizeof value, width, rows, nullptr);
END
CALL(cuMemsetD2D32Async, Address at, size_t pitch, unsigned value, size_t width, size_t rows, Stream *stream)
    return fill(at, pitch, &value, sizeof value, width, rows, stream);
END

// Arrays, textures, surfaces, tensor maps ------------------------------------------------------------------------------

struct ArrayDescriptor { size_t width, height, depth; int format; unsigned channels, flags; };
struct Copy2D {
    size_t from_x, from_y; int from_type; const char *from_host; Address from_device; Array *from_array; size_t from_pitch;
    size_t to_x, to_y; int to_type; char *to_host; Address to_device; Array *to_array; size_t to_pitch;
    size_t width, height;
};
struct Copy3D {
    size_t from_x, from_y, from_z, from_lod; int from_type; const char *from_host; Address from_device;
    Array *from_array; void *reserved0; size_t from_pitch, from_height;
    size_t to_x, to_y, to_z, to_lod; int to_type; char *to_host; Address to_device; Array *to_array; void *reserved1;
    size_t to_pitch, to_height;
    size_t width, height, depth;
};
struct Resource {
    int type;
    union { Array *array; struct { Address place; int format; unsigned channels; size_t bytes; } linear; int all[32]; } of;
    unsigned flags;
};

static int format_bytes(int format) {  // CUarray_format
    switch (format) {
        case 1: case 8: return 1;
        case 2: case 9: case 16: return 2;
        default: return 4;
    }
}
size_t Array::row() const { return extents[0] * channels * format_bytes(format); }

static size_t array_bytes(const Array &array) {
    return array.row() * std::max<size_t>(1, array.extents[1]) * std::max<size_t>(1, array.extents[2]);
}
static Status make_array(Array **made, const ArrayDescriptor &how) {
    if (!how.width || (how.channels != 1 && how.channels != 2 && how.channels != 4)) return INVALID_VALUE;
    std::unique_ptr<Array> array(
        new Array{0, {how.width, how.height, how.depth}, how.format, how.channels, how.flags});
    if (Status status = allocate(&array->place, array_bytes(*array), DEVICE)) return status;
    *made = keep(array.release());
    return SUCCESS;
}
CALL(cuArray3DCreate_v2, Array **made, const ArrayDescriptor *how) return make_array(made, *how); END
CALL_STARTED(cuArrayDestroy, Array *handle)
    auto array = held(handle);
    if (!array) return INVALID_HANDLE;
    live<Array>.erase(handle);
    return at_rest([slot = int(array->place >> SLOT_BITS)] { finish_everything(), release(slot); });
END

// One end of a copy of boxes; status: what is wrong with it.
static End end_of(int type, const char *host, Address device, Array *handle, const size_t *from, size_t pitch,
                  size_t rows, const size_t *box, Status *status) {
    if (type == MEMORY_ARRAY) {
        auto array = held(handle);
        if (!array) return *status = INVALID_HANDLE, End{};
        size_t sides[3] = {array->row(), std::max<size_t>(1, array->extents[1]), std::max<size_t>(1, array->extents[2])};
        for (int axis = 0; axis < 3; axis++)
            if (box[axis] > sides[axis] || from[axis] > sides[axis] - box[axis]) *status = INVALID_VALUE;
        device = array->place, pitch = sides[0], rows = sides[1];
    } else if (type == MEMORY_HOST) {
        device = 0;
    } else if (type != MEMORY_DEVICE && type != MEMORY_UNIFIED) {
        *status = INVALID_VALUE;
    }
    if (box[1] > 1 && pitch < from[0] + box[0]) *status = INVALID_VALUE;
    if (box[2] > 1 && rows < from[1] + box[1]) *status = INVALID_VALUE;
    size_t start = (from[2] * rows + from[1]) * pitch + from[0];
    return End{device ? device + start : 0, device ? nullptr : (char *)host + start, pitch, rows};
}
static Status copy_3d(const Copy3D &how, Stream *stream, bool wait) {
    size_t box[3] = {how.width, how.height, how.depth};
    size_t from[3] = {how.from_x, how.from_y, how.from_z}, to[3] = {how.to_x, how.to_y, how.to_z};
    Status status = SUCCESS;
    End source = end_of(how.from_type, how.from_host, how.from_device, how.from_array, from, how.from_pitch,
                        how.from_height, box, &status);
    End target = end_of(how.to_type, how.to_host, how.to_device, how.to_array, to, how.to_pitch, how.to_height, box,
                        &status);
    return status ? status : copy_box(target, source, how.width, how.height, how.depth, stream, wait);
}
static Status copy_2d(const Copy2D &how, Stream *stream, bool wait) {
    Copy3D whole{};
    whole.from_x = how.from_x, whole.from_y = how.from_y, whole.from_type = how.from_type;
    whole.from_host = how.from_host, whole.from_device = how.from_device, whole.from_array = how.from_array;
    whole.from_pitch = how.from_pitch;
    whole.to_x = how.to_x, whole.to_y = how.to_y, whole.to_type = how.to_type;
    whole.to_host = how.to_host, whole.to_device = how.to_device, whole.to_array = how.to_array;
    whole.to_pitch = how.to_pitch;
    whole.width = how.width, whole.height = how.height, whole.depth = 1;
    return copy_3d(whole, stream, wait);
}
CALL(cuMemcpy2D_v2, const Copy2D *how) return copy_2d(*how, nullptr, true); END
CALL(cuMemcpy2DUnaligned_v2, const Copy2D *how) return copy_2d(*how, nullptr, true); END
CALL(cuMemcpy2DAsync_v2, const Copy2D *how, Stream *stream) return copy_2d(*how, stream, false); END
CALL(cuMemcpy3D_v2, const Copy3D *how) return copy_3d(*how, nullptr, true); END
CALL(cuMemcpy3DAsync_v2, const Copy3D *how, Stream *stream) return copy_3d(*how, stream, false); END
static Status make_object(Address *handle, const Resource *resource, const void *how) {
    if (resource->type != 0 && resource->type != 2) {
        fprintf(stderr, "the simulated driver has textures of CUDA arrays and linear memory only\n");
        return NOT_SUPPORTED;
    }
    auto array = resource->type == 0 ? held(resource->of.array) : nullptr;
    if (resource->type == 0 && !array) return INVALID_HANDLE;
    Address place = array ? array->place : resource->of.linear.place;
    size_t bytes = array ? array_bytes(*array) : resource->of.linear.bytes;
    char *host = host_of(place, bytes);
    if (!host) return INVALID_VALUE;
    // Of a CUDA array the format and channels stand where those of linear memory do.
    Resource told = *resource;
    if (array) told.of.linear = {place, array->format, array->channels, bytes};
    size_t none[3] = {0, 0, 0};
    *handle = next_handle += 16;
    has_objects = true;
    return callbacks.texture(*handle, &told, how, host, place, bytes, array ? array->extents : none, array ? array->flags : 0);
}
CALL(cuTexObjectCreate, Address *handle, const Resource *resource, const void *how, const void *)
    return make_object(handle, resource, how);
END
CALL(cuSurfObjectCreate, Address *handle, const Resource *resource) return make_object(handle, resource, nullptr); END
CALL_STARTED(cuTexObjectDestroy, Address handle) return callbacks.texture(handle, 0, 0, 0, 0, 0, 0, 0); END
CALL_STARTED(cuSurfObjectDestroy, Address handle) return callbacks.texture(handle, 0, 0, 0, 0, 0, 0, 0); END
CALL(cuTensorMapEncodeTiled, void *map, int type, unsigned rank, Address place, const void *sizes, const void *strides,
     const void *box, const void *steps, int, int swizzle, int, int fill)
    return callbacks.tensor_map(map, type, rank, place, sizes, strides, box, steps, swizzle, fill);
END

// Modules --------------------------------------------------------------------------------------------------------------

static size_t image_bytes(const char *image) {
    if (memcmp(image, "\177ELF", 4)) return strlen(image);
    uint64_t sections, programs;
    memcpy(&programs, image + 32, 8), memcpy(&sections, image + 40, 8);
    uint16_t sizes[4];  // of a program header, how many; of a section header, how many
    memcpy(sizes, image + 54, 8);
    return std::max(programs + sizes[0] * sizes[1], sections + sizes[2] * sizes[3]);
}
static Status load(Module **made, const char *image) {
    if (!image) return INVALID_VALUE;
    int slots = 0;
    std::unique_ptr<Module> module(new Module{next_module++, next_slot, 0, context(), {}});
    if (Status status = callbacks.load(module->number, image, image_bytes(image), next_slot, &slots)) return status;
    module->slots = slots;
    for (int slot = next_slot; slot < next_slot + slots; slot++) reserved.insert(slot);
    next_slot += slots;
    *made = keep(module.release());
    return SUCCESS;
}
CALL(cuModuleLoadData, Module **made, const char *image) return load(made, image); END
CALL(cuModuleLoadDataEx, Module **made, const char *image, unsigned, void *, void *) return load(made, image); END
CALL_STARTED(cuModuleUnload, Module *module)
    if (!held(module)) return INVALID_HANDLE;
    return at_rest([=] {
        finish_everything();
        if (held(module)) unload(module);
    });
END
CALL(cuModuleGetFunction, Kernel **found, Module *module, const char *name)
    if (!held(module)) return INVALID_HANDLE;
    Kernel *&kernel = module->kernels[name];
    if (!kernel) {
        std::unique_ptr<Kernel> made(new Kernel{module, name, {}, 0});
        if (Status status = callbacks.find(module->number, name, &made->told)) {
            module->kernels.erase(name);
            return status;
        }
        made->dynamic_shared = cards[context()->device].attributes[8] - made->told.attributes[1];
        kernel = keep(made.release());
    }
    *found = kernel;
END
CALL(cuModuleGetGlobal_v2, Address *address, size_t *bytes, Module *module, const char *name)
    if (!held(module)) return INVALID_HANDLE;
    Address place;
    void *host;
    size_t size;
    if (Status status = callbacks.variable(module->number, name, &place, &host, &size)) return status;
    memories[int(place >> SLOT_BITS)] = Memory{(char *)host, size, context(), VARIABLE};
    if (address) *address = place;
    if (bytes) *bytes = size;
END
CALL(cuFuncGetAttribute, int *value, int attribute, Kernel *kernel)
    if (!held(kernel)) return INVALID_HANDLE;
    if (attribute < 0 || attribute >= 16) return INVALID_VALUE;
    *value = attribute == 8 ? kernel->dynamic_shared : kernel->told.attributes[attribute];
END
CALL(cuFuncSetAttribute, Kernel *kernel, int attribute, int value)
    if (!held(kernel)) return INVALID_HANDLE;
    if (attribute == 8) {
        int most = cards[context()->device].attributes[97] - kernel->told.attributes[1];
        if (value < 0 || value > most) return INVALID_VALUE;
        kernel->dynamic_shared = std::max(kernel->dynamic_shared, value);
    } else if (attribute == 14) {
        kernel->large_clusters = value;
    } else if (attribute != 9) {  // 9: a wish for more shared memory than L1 cache
        return INVALID_VALUE;
    }
END
CALL(cuFuncSetCacheConfig, Kernel *, int) END
// PyCUDA's launches say both again.
CALL(cuFuncSetBlockShape, Kernel *, int, int, int) END
CALL(cuFuncSetSharedSize, Kernel *, unsigned) END

// Streams, events, graphs ----------------------------------------------------------------------------------------------

CALL(cuStreamCreate, Stream **made, unsigned flags)
    if (flags > 1) return INVALID_VALUE;
    *made = keep(new Stream{context(), !(flags & 1), {}, nullptr});
    context()->streams.insert(held(*made));
END
CALL_STARTED(cuStreamDestroy_v2, Stream *stream)
    if (!held(stream)) return INVALID_HANDLE;
    Context *in = stream->context;
    live<Stream>.erase(stream);  // what is queued still runs
    return in->failed;
END
CALL(cuStreamSynchronize, Stream *handle)
    auto stream = stream_of(handle);
    return stream ? wait_for(stream.get(), sequence) : INVALID_HANDLE;
END
CALL(cuStreamQuery, Stream *handle)
    auto stream = stream_of(handle);
    return stream ? wait_for(stream.get(), sequence) : INVALID_HANDLE;
END
CALL(cuStreamWaitEvent, Stream *handle, Event *event, unsigned)
    auto stream = stream_of(handle);
    if (!stream || !held(event)) return INVALID_HANDLE;
    if (event->captured) stream->captured = event->captured;  // its work becomes the graph's, in the order of the calls
    else if (event->stream) return queue(stream, Work{nullptr, event->stream, event->until});
END
CALL(cuEventCreate, Event **made, unsigned flags)
    if (flags > 7 || (flags & 4 && !(flags & 2))) return INVALID_VALUE;
    *made = keep(new Event{context(), !(flags & 2), nullptr, 0, -1, nullptr});
END
CALL_STARTED(cuEventDestroy_v2, Event *event)
    if (!held(event)) return INVALID_HANDLE;
    Context *in = event->context;
    live<Event>.erase(event);
    return in->failed;
END
CALL(cuEventRecord, Event *handle, Stream *on)
    auto event = held(handle);
    auto stream = stream_of(on);
    if (!event || !stream || stream->context != event->context) return INVALID_HANDLE;
    event->captured = stream->captured;
    event->at = -1;
    unsigned long long number = stream->captured ? 0 : sequence + 1;
    event->stream = stream->captured ? nullptr : stream;
    event->until = number;
    return queue(stream, Work{[=](double *) -> Status {
        if (event->until == number) event->at = event->context->now;
        return SUCCESS;
    }, nullptr});
END
static Status reached(Event *event) {
    if (!held(event)) return INVALID_HANDLE;
    if (event->captured) return CAPTURED_EVENT;
    return event->stream ? wait_for(event->stream.get(), event->until) : SUCCESS;
}
CALL(cuEventSynchronize, Event *event) return reached(event); END
CALL(cuEventQuery, Event *event) return reached(event); END
CALL(cuEventElapsedTime_v2, float *milliseconds, Event *start, Event *stop)
    if (!held(start) || !held(stop) || start->context != stop->context) return INVALID_HANDLE;
    for (Event *one : {start, stop})
        if (!one->stream || !one->timed) return INVALID_HANDLE;
    if (start->at < 0 || stop->at < 0) return NOT_READY;
    *milliseconds = float((stop->at - start->at) * 1e-6);
END

CALL(cuStreamBeginCapture_v2, Stream *handle, int)
    auto stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    if (stream->captured) return INVALID_VALUE;
    if (stream == context()->everything) return CAPTURING;
    stream->captured = std::make_shared<std::vector<Work>>();
END
CALL(cuStreamEndCapture, Stream *handle, Graph **graph)
    auto stream = stream_of(handle);
    if (!stream) return INVALID_HANDLE;
    Capture works = stream->captured;
    if (!works) return INVALID_VALUE;
    for (auto &one : stream->context->streams)  // and those that joined by an event
        if (one->captured == works) one->captured = nullptr;
    *graph = keep(new Graph{*works});
END
CALL(cuGraphInstantiateWithFlags, Graph **ready, Graph *graph, unsigned long long)
    if (!held(graph)) return INVALID_HANDLE;
    *ready = keep(new Graph(*graph));
END
CALL_STARTED(cuGraphDestroy, Graph *graph) if (!live<Graph>.erase(graph)) return INVALID_HANDLE; END
CALL_STARTED(cuGraphExecDestroy, Graph *graph) if (!live<Graph>.erase(graph)) return INVALID_HANDLE; END
CALL(cuGraphUpload, Graph *graph, Stream *) if (!held(graph)) return INVALID_HANDLE; END
CALL(cuGraphLaunch, Graph *handle, Stream *on)
    auto graph = held(handle);
    auto stream = stream_of(on);
    if (!graph || !stream) return INVALID_HANDLE;
    Context *in = context();
    return queue(stream, Work{[=](double *) -> Status {
        for (Work &work : graph->works) {
            double takes = 0;
            Status status = work.run ? work.run(&takes) : SUCCESS;
            in->now += takes;
            if (status) return status;
        }
        return SUCCESS;
    }, nullptr});
END

// Launches -------------------------------------------------------------------------------------------------------------

static Status launch(Kernel *handle, const unsigned *sides, const unsigned *cluster, unsigned shared, Stream *on,
                     void **parameters, void **extra, bool cooperative) {
    auto kernel = held(handle);
    auto stream = stream_of(on);
    if (!kernel || !stream) return INVALID_HANDLE;
    if (stream->context != context() || kernel->module->context != context()) return INVALID_HANDLE;
    const int *limits = cards[context()->device].attributes, *needs = kernel->told.attributes;
    unsigned long long threads = 1;
    for (int axis = 0; axis < 3; axis++) {  // the limits of blocks are attributes 2 to 4, those of grids 5 to 7
        if (!sides[axis] || sides[axis] > unsigned(limits[5 + axis])) return INVALID_VALUE;
        if (!sides[3 + axis] || sides[3 + axis] > unsigned(limits[2 + axis])) return INVALID_VALUE;
        threads *= sides[3 + axis];
        if (cluster && (!cluster[axis] || sides[axis] % cluster[axis])) return INVALID_VALUE;
    }
    if (threads > unsigned(limits[1])) return INVALID_VALUE;
    if (threads > unsigned(needs[0])) return OUT_OF_RESOURCES;
    if (kernel->dynamic_shared < 0 || shared > unsigned(kernel->dynamic_shared)) return INVALID_VALUE;
    if (cluster && cluster[0] * cluster[1] * cluster[2] > (kernel->large_clusters ? 16u : 8u)) return INVALID_VALUE;
    if (cooperative) {
        unsigned long long resident = unsigned(limits[39]) / ((threads + 31) / 32 * 32) * unsigned(limits[16]);
        if ((unsigned long long)sides[0] * sides[1] * sides[2] > resident) return TOO_LARGE;
    }
    int last = kernel->told.parameters - 1;
    std::vector<char> bytes(last < 0 ? 0 : kernel->told.offsets[last] + kernel->told.sizes[last]);
    if (extra) {  // a list of keys and values: 1 the buffer, 2 its size
        const char *buffer = nullptr;
        size_t size = 0;
        for (int i = 0; extra[i]; i += 2) {
            if ((size_t)extra[i] == 1) buffer = (const char *)extra[i + 1];
            if ((size_t)extra[i] == 2) size = *(size_t *)extra[i + 1];
        }
        if (size < bytes.size() || (size && !buffer)) {
            fprintf(stderr, "the simulated driver: kernel %s takes %zu bytes of arguments, and was given %zu\n",
                    kernel->name.c_str(), bytes.size(), size);
            return INVALID_VALUE;
        }
        bytes.assign(buffer, buffer + bytes.size());
    } else if (!bytes.empty()) {
        if (!parameters) return INVALID_VALUE;
        for (int i = 0; i <= last; i++)
            memcpy(bytes.data() + kernel->told.offsets[i], parameters[i], kernel->told.sizes[i]);
    }
    Launch what{kernel->module->number, nullptr, {}, {}, shared, nullptr, 0};
    std::copy(sides, sides + 6, what.sides);
    if (cluster) std::copy(cluster, cluster + 3, what.cluster);
    return queue(stream, Work{[=](double *time) -> Status {
        if (!held(kernel.get())) return INVALID_HANDLE;  // unloaded since: of a graph
        Launch now = what;
        now.name = kernel->name.c_str();
        now.parameters = bytes.data();
        now.parameter_bytes = bytes.size();
        Status status = callbacks.launch(&now, time);
        interrupted = status == INTERRUPTED;
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        *time *= 1 + 0.01 * (double(chance >> 11) / (1ull << 53));  // no two launches take the same time
        return interrupted ? LAUNCH_FAILED : status;
    }, nullptr});
}
CALL(cuLaunchKernel, Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
     unsigned shared, Stream *stream, void **parameters, void **extra)
    unsigned sides[6] = {gx, gy, gz, bx, by, bz};
    return launch(kernel, sides, nullptr, shared, stream, parameters, extra, false);
END
CALL(cuLaunchCooperativeKernel, Kernel *kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
     unsigned bz, unsigned shared, Stream *stream, void **parameters)
    unsigned sides[6] = {gx, gy, gz, bx, by, bz};
    return launch(kernel, sides, nullptr, shared, stream, parameters, nullptr, true);
END
struct Attribute { int id, pad; unsigned value[16]; };
struct Configuration { unsigned sides[6], shared; Stream *stream; Attribute *attributes; unsigned count; };
CALL(cuLaunchKernelEx, const Configuration *how, Kernel *kernel, void **parameters, void **extra)
    const unsigned *cluster = nullptr;
    bool cooperative = false;
    for (unsigned i = 0; i < how->count; i++) {
        if (how->attributes[i].id == 4) cluster = how->attributes[i].value;
        if (how->attributes[i].id == 2) cooperative = how->attributes[i].value[0];
    }
    return launch(kernel, how->sides, cluster, how->shared, how->stream, parameters, extra, cooperative);
END

// The rest -------------------------------------------------------------------------------------------------------------

static Status missing(const char *name) {
    fprintf(stderr, "the simulated driver has no %s\n", name);
    return NOT_SUPPORTED;
}
#define MISSING(name) extern "C" Status name() { Held one; return missing(#name); }
#include "missing.inc"
