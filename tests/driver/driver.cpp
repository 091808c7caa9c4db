// A CUDA driver without a GPU: libcuda.so.1 for programs in this Python process, whose launches run in the simulator.
//
// Device memory is host memory, and the address of an allocation is the simulator's: 2^40 bytes of address space each,
// so that a pointer means the same wherever a kernel finds it. Streams are queues: what is queued runs when somebody
// waits for it. Time is invented: each piece of work says how many nanoseconds it takes. What needs Python (loading a
// module, launching) is called back; host.py sets these callbacks when cuInit starts it in the process's interpreter.
//
// Every call is listed once, by CALL or CALL_ANYTIME, which count it and give it the fault that fail_at asks for. A call
// of the list `missing.inc` that stands nowhere here says its name and returns CUDA_ERROR_NOT_SUPPORTED.

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
#include <set>
#include <string>
#include <vector>

typedef int Status;
typedef unsigned long long Address;

enum : Status {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, NO_BINARY = 209, INVALID_HANDLE = 400, NOT_FOUND = 500, NOT_READY = 600,
    ILLEGAL_ADDRESS = 700, OUT_OF_RESOURCES = 701, MISALIGNED = 716, LAUNCH_FAILED = 719, TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
};

const int SLOT_BITS = 40;
const size_t SLOT = size_t(1) << SLOT_BITS;
const size_t MOST_QUEUED = 1024;  // launches of a stream; one more waits until there is room, as on a GPU
const int MEMORY_ARRAY = 3, MEMORY_HOST = 1;

// What host.py sets ----------------------------------------------------------------------------------------------------

struct Card {
    char name[128];
    int attributes[256];  // -1: unknown
    size_t memory;
    double bytes_per_ns;
    unsigned char uuid[16];
};

struct Function {
    char name[1024];
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
    int (*find)(int module, const char *name, Function *function);
    int (*variable)(int module, const char *name, Address *address, void **host, size_t *bytes);
    int (*launch)(const Launch *launch, double *nanoseconds);
    int (*texture)(Address handle, const void *resource, const void *texture, void *host, Address place, size_t bytes,
                   const size_t *extents, unsigned flags);
    int (*tensor_map)(void *map, int type, unsigned rank, Address place, const void *sizes, const void *strides,
                      const void *box, const void *steps, int swizzle, int fill);
};

static Callbacks callbacks;
static std::vector<Card> cards;

// State ----------------------------------------------------------------------------------------------------------------

struct Memory {
    char *host;
    size_t bytes, mapped;
    int device;
    bool pinned;  // the host's: a second address of its memory
};

struct Work {
    std::function<Status(double *)> run;  // null: a wait
    struct Stream *other = nullptr;       // whose work up to `until` comes first
    unsigned long long until = 0;
};

struct Stream {
    int device;
    bool blocking;  // waits for the default stream, and is waited for by it
    std::deque<std::pair<unsigned long long, Work>> queue;
    std::vector<Work> *captured = nullptr;
};

struct Event {
    Stream *stream = nullptr;
    unsigned long long until = 0;
    double at = -1;
};

struct Context {
    int device;
    Status failed = SUCCESS;
    Stream everything;  // the default stream
    std::set<Stream *> streams;
    double now = 0;  // nanoseconds
    bool primary = false;
    int holders = 0;
};

struct Module {
    int number;
    Context *context;
    std::map<std::string, struct Kernel *> kernels;
};

struct Kernel {
    Module *module;
    Function told;
    int dynamic_shared = 48 << 10;
    bool large_clusters = false;
};

struct Array {
    Address place;
    size_t extents[3];
    int format;
    unsigned channels, flags;
    size_t row() const;
};

static std::map<int, Memory> memories;  // by slot
static std::vector<Context *> current;  // PyCUDA's contexts are a stack of one thread
static std::map<int, Context *> primaries;
static std::map<std::string, int> calls;
static std::set<Module *> modules;
static unsigned long long sequence;
static int next_slot = 1, next_module;
static Address next_handle = Address(1) << 35;
static bool started;
static std::string failing;  // NAME:COUNT=STATUS
static uint64_t chance = 88172645463325252ull;

static Context *context() { return current.empty() ? nullptr : current.back(); }

static Status enter(const char *name) {
    int count = ++calls[name];
    if (failing.empty()) return SUCCESS;
    size_t colon = failing.find(':'), equal = failing.find('=');
    if (failing.substr(0, colon) != name || std::atoi(failing.c_str() + colon + 1) != count) return SUCCESS;
    return std::atoi(failing.c_str() + equal + 1);
}

static Status in_context(const char *name) {
    Status status = enter(name);
    if (status) return status;
    if (!started) return NOT_INITIALIZED;
    return context() ? context()->failed : INVALID_CONTEXT;
}

#define CALL_ANYTIME(name, ...)                     \
    extern "C" Status name(__VA_ARGS__) {           \
        if (Status status = enter(#name)) return status;
#define CALL(name, ...)                             \
    extern "C" Status name(__VA_ARGS__) {           \
        if (Status status = in_context(#name)) return status;
#define END return SUCCESS; }

// Memory ---------------------------------------------------------------------------------------------------------------

static size_t used(int device) {
    size_t sum = 0;
    for (auto &one : memories) sum += one.second.device == device && !one.second.pinned ? one.second.bytes : 0;
    return sum;
}

static int free_slot() {
    int slot = next_slot++;
    if (slot > 4096) {  // the oldest that is free again
        slot = 1;
        while (memories.count(slot)) slot++;
    }
    return slot;
}

static Status allocate(Address *address, size_t bytes, bool pinned) {
    int device = context()->device;
    if (!bytes || bytes > SLOT / 2) return bytes ? OUT_OF_MEMORY : INVALID_VALUE;
    if (!pinned && used(device) + bytes > cards[device].memory) return OUT_OF_MEMORY;
    size_t mapped = (bytes + 4095) / 4096 * 4096;
    void *host = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) return OUT_OF_MEMORY;
    // A GPU's memory is as others left it.
    if (!pinned) memset(host, 0xA5, std::min(mapped, size_t(64) << 20));
    int slot = free_slot();
    memories[slot] = Memory{(char *)host, bytes, mapped, device, pinned};
    *address = Address(slot) << SLOT_BITS;
    return SUCCESS;
}

static void release(int slot) {
    Memory &memory = memories[slot];
    if (memory.mapped) munmap(memory.host, memory.mapped);
    memories.erase(slot);
}

// The host's memory behind bytes of the device, null where they do not all lie in one allocation.
static char *host_of(Address address, size_t bytes) {
    auto found = memories.find(int(address >> SLOT_BITS));
    size_t offset = address & (SLOT - 1);
    if (found == memories.end() || offset + bytes > found->second.bytes) return nullptr;
    return found->second.host + offset;
}

static int pinned_slot(const void *host) {
    for (auto &one : memories)
        if (one.second.pinned && one.second.host <= (char *)host && (char *)host < one.second.host + one.second.bytes)
            return one.first;
    return 0;
}

// Streams --------------------------------------------------------------------------------------------------------------

static Stream *stream_of(Stream *stream) { return (size_t)stream > 2 ? stream : &context()->everything; }

static void step(Context *in, Stream *stream);

static void drain(Context *in, Stream *stream, unsigned long long until) {
    while (!stream->queue.empty() && stream->queue.front().first <= until) step(in, stream);
}

// Run the first work of a stream, behind what it has to wait for.
static void step(Context *in, Stream *stream) {
    auto [number, work] = std::move(stream->queue.front());
    stream->queue.pop_front();
    if (stream == &in->everything) {
        for (Stream *other : in->streams)
            if (other->blocking) drain(in, other, number);
    } else if (stream->blocking) {
        drain(in, &in->everything, number);
    }
    if (work.other) drain(in, work.other, work.until);
    double nanoseconds = 0;
    if (work.run && !in->failed) in->failed = work.run(&nanoseconds);
    in->now += nanoseconds;
}

static Status wait_for(Stream *stream) {
    drain(context(), stream, sequence);
    return context()->failed;
}

static Status wait_for_all() {
    Context *in = context();
    if (!in) return INVALID_CONTEXT;
    drain(in, &in->everything, sequence);
    for (Stream *stream : in->streams) drain(in, stream, sequence);
    return in->failed;
}

static Status queue(Stream *stream, Work work) {
    stream = stream_of(stream);
    if (stream->captured) {
        stream->captured->push_back(std::move(work));
        return SUCCESS;
    }
    if (stream->queue.size() >= MOST_QUEUED) step(context(), stream);
    stream->queue.emplace_back(++sequence, std::move(work));
    return SUCCESS;
}

static double moving(size_t bytes) { return 1000 + bytes / cards[context()->device].bytes_per_ns; }

static Status queue_copy(char *to, const char *from, size_t bytes, Stream *stream) {
    if (!to || !from) return INVALID_VALUE;
    double takes = moving(bytes);
    return queue(stream, Work{[=](double *time) -> Status {
        memmove(to, from, bytes);
        *time = takes;
        return SUCCESS;
    }});
}

static Status queue_fill(Address at, const void *pattern, size_t width, size_t count, Stream *stream) {
    char *to = host_of(at, width * count);
    if (!to) return INVALID_VALUE;
    std::string bytes((const char *)pattern, width);
    double takes = moving(width * count);
    return queue(stream, Work{[=](double *time) -> Status {
        if (width == 1) memset(to, bytes[0], count);
        else for (size_t i = 0; i < count; i++) memcpy(to + i * width, bytes.data(), width);
        *time = takes;
        return SUCCESS;
    }});
}

// What host.py calls ---------------------------------------------------------------------------------------------------

extern "C" void simulated_start(const Callbacks *functions, const Card *there, int count, const char *fail_at) {
    callbacks = *functions;
    cards.assign(there, there + count);
    failing = fail_at;
}

// The memories that kernels of the current device can reach; returns how many there are.
extern "C" int simulated_memories(int *slots, void **hosts, size_t *sizes, int room) {
    int count = 0;
    for (auto &one : memories) {
        if (!one.second.pinned && context() && one.second.device != context()->device) continue;
        if (count < room) slots[count] = one.first, hosts[count] = one.second.host, sizes[count] = one.second.bytes;
        count++;
    }
    return count;
}

// How often a call was made.
extern "C" int simulated_calls(const char *name) { return calls[name]; }

// Start and devices ----------------------------------------------------------------------------------------------------

CALL_ANYTIME(cuInit, unsigned)
    if (started) return cards.empty() ? NO_DEVICE : SUCCESS;
    auto ensure = (int (*)())dlsym(RTLD_DEFAULT, "PyGILState_Ensure");
    auto leave = (void (*)(int))dlsym(RTLD_DEFAULT, "PyGILState_Release");
    auto run = (int (*)(const char *, void *))dlsym(RTLD_DEFAULT, "PyRun_SimpleStringFlags");
    if (!ensure || !leave || !run) {
        fprintf(stderr, "the simulated driver works in a Python process only\n");
        return NO_DEVICE;
    }
    started = true;
    int state = ensure();
    int wrong = run("import importlib.util as _u, sys\n"
                    "_s = _u.spec_from_file_location('simulated_driver', '" HOST "')\n"
                    "_m = sys.modules['simulated_driver'] = _u.module_from_spec(_s)\n"
                    "_s.loader.exec_module(_m)\n"
                    "_m.start()\n", nullptr);
    leave(state);
    if (wrong) return 999;
    return cards.empty() ? NO_DEVICE : SUCCESS;
}
CALL_ANYTIME(cuDriverGetVersion, int *version) *version = 13000; END
CALL_ANYTIME(cuDeviceGetCount, int *count) *count = int(cards.size()); END
CALL_ANYTIME(cuDeviceGet, int *device, int ordinal)
    if (ordinal < 0 || ordinal >= int(cards.size())) return INVALID_DEVICE;
    *device = ordinal;
END
CALL_ANYTIME(cuDeviceGetName, char *name, int room, int device) snprintf(name, room, "%s", cards[device].name); END
CALL_ANYTIME(cuDeviceGetAttribute, int *value, int attribute, int device)
    if (attribute < 0 || attribute >= 256 || cards[device].attributes[attribute] < 0) {
        fprintf(stderr, "the simulated driver does not know device attribute %d\n", attribute);
        return INVALID_VALUE;
    }
    *value = cards[device].attributes[attribute];
END
CALL_ANYTIME(cuDeviceComputeCapability, int *major, int *minor, int device)
    *major = cards[device].attributes[75];
    *minor = cards[device].attributes[76];
END
CALL_ANYTIME(cuDeviceTotalMem_v2, size_t *bytes, int device) *bytes = cards[device].memory; END
CALL_ANYTIME(cuDeviceGetUuid, unsigned char *uuid, int device) memcpy(uuid, cards[device].uuid, 16); END
CALL_ANYTIME(cuDeviceGetUuid_v2, unsigned char *uuid, int device) memcpy(uuid, cards[device].uuid, 16); END
CALL_ANYTIME(cuDeviceGetPCIBusId, char *text, int room, int device) snprintf(text, room, "0000:%02x:00.0", device); END
CALL_ANYTIME(cuDeviceCanAccessPeer, int *can, int, int) *can = 0; END

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
    {716, {"CUDA_ERROR_MISALIGNED_ADDRESS", "misaligned address"}},
    {719, {"CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"}},
    {720, {"CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"}},
    {801, {"CUDA_ERROR_NOT_SUPPORTED", "operation not supported"}},
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
    made->everything.device = device;
    made->everything.blocking = false;
    return made;
}
static Status create_context(Context **made, int device) {
    if (!started) return NOT_INITIALIZED;
    if (device < 0 || device >= int(cards.size())) return INVALID_DEVICE;
    current.push_back(*made = new_context(device));
    return SUCCESS;
}
CALL_ANYTIME(cuCtxCreate_v4, Context **made, void *, unsigned, int device) return create_context(made, device); END
CALL_ANYTIME(cuCtxCreate_v2, Context **made, unsigned, int device) return create_context(made, device); END
CALL_ANYTIME(cuCtxAttach, Context **found, unsigned)
    if (!context()) return INVALID_CONTEXT;
    *found = context();
END
CALL_ANYTIME(cuCtxDetach, Context *) END
CALL_ANYTIME(cuCtxPushCurrent_v2, Context *pushed) current.push_back(pushed); END
CALL_ANYTIME(cuCtxPopCurrent_v2, Context **popped)
    if (!context()) return INVALID_CONTEXT;
    if (popped) *popped = context();
    current.pop_back();
END
CALL_ANYTIME(cuCtxGetCurrent, Context **found) *found = context(); END
CALL_ANYTIME(cuCtxSetCurrent, Context *set)
    if (!current.empty()) current.pop_back();
    if (set) current.push_back(set);
END
CALL_ANYTIME(cuCtxGetDevice, int *device)
    if (!context()) return INVALID_CONTEXT;
    *device = context()->device;
END
CALL_ANYTIME(cuCtxGetApiVersion, Context *, unsigned *version) *version = 13000; END
CALL_ANYTIME(cuDevicePrimaryCtxSetFlags_v2, int, unsigned) END
CALL_ANYTIME(cuDevicePrimaryCtxRetain, Context **found, int device)
    Context *&there = primaries[device];
    if (!there) there = new_context(device);
    there->holders++;
    *found = there;
END
CALL_ANYTIME(cuDevicePrimaryCtxRelease_v2, int device) primaries[device]->holders--; END
CALL(cuCtxSynchronize) return wait_for_all(); END
CALL(cuCtxResetPersistingL2Cache) END
CALL(cuCtxGetLimit, size_t *value, int) *value = 0; END
CALL(cuCtxSetLimit, int, size_t) END
CALL(cuCtxGetCacheConfig, int *value) *value = 0; END
CALL(cuCtxSetCacheConfig, int) END

// Memory ---------------------------------------------------------------------------------------------------------------

CALL(cuMemAlloc_v2, Address *address, size_t bytes) return allocate(address, bytes, false); END
CALL(cuMemAllocPitch_v2, Address *address, size_t *pitch, size_t width, size_t height, unsigned)
    *pitch = (width + 511) / 512 * 512;
    return allocate(address, *pitch * height, false);
END
CALL_ANYTIME(cuMemFree_v2, Address address)
    int slot = int(address >> SLOT_BITS);
    if (!memories.count(slot) || address & (SLOT - 1)) return INVALID_VALUE;
    if (context()) wait_for_all();
    release(slot);
END
CALL(cuMemGetInfo_v2, size_t *left, size_t *all)
    *all = cards[context()->device].memory;
    *left = *all - used(context()->device);
END
CALL(cuMemGetAddressRange_v2, Address *base, size_t *bytes, Address address)
    auto found = memories.find(int(address >> SLOT_BITS));
    if (found == memories.end()) return NOT_FOUND;
    if (base) *base = Address(found->first) << SLOT_BITS;
    if (bytes) *bytes = found->second.bytes;
END
CALL(cuMemHostAlloc, void **host, size_t bytes, unsigned)
    Address address;
    if (Status status = allocate(&address, bytes, true)) return status;
    *host = memories[int(address >> SLOT_BITS)].host;
END
CALL_ANYTIME(cuMemFreeHost, void *host)
    int slot = pinned_slot(host);
    if (!slot) return INVALID_VALUE;
    if (context()) wait_for_all();
    release(slot);
END
CALL(cuMemHostGetDevicePointer_v2, Address *address, void *host, unsigned)
    int slot = pinned_slot(host);
    if (!slot) return INVALID_VALUE;
    *address = (Address(slot) << SLOT_BITS) + ((char *)host - memories[slot].host);
END
CALL(cuMemHostGetFlags, unsigned *flags, void *) *flags = 2; END

// Synchronous copies wait for the default stream, which waits for all others that do not say otherwise.
static Status copy_now(char *to, const char *from, size_t bytes) {
    if (Status status = queue_copy(to, from, bytes, nullptr)) return status;
    return wait_for(&context()->everything);
}
CALL(cuMemcpyHtoD_v2, Address to, const char *from, size_t bytes) return copy_now(host_of(to, bytes), from, bytes); END
CALL(cuMemcpyDtoH_v2, char *to, Address from, size_t bytes) return copy_now(to, host_of(from, bytes), bytes); END
CALL(cuMemcpyDtoD_v2, Address to, Address from, size_t bytes)
    return queue_copy(host_of(to, bytes), host_of(from, bytes), bytes, nullptr);
END
CALL(cuMemcpyHtoDAsync_v2, Address to, const char *from, size_t bytes, Stream *stream)
    return queue_copy(host_of(to, bytes), from, bytes, stream);
END
CALL(cuMemcpyDtoHAsync_v2, char *to, Address from, size_t bytes, Stream *stream)
    return queue_copy(to, host_of(from, bytes), bytes, stream);
END
CALL(cuMemcpyDtoDAsync_v2, Address to, Address from, size_t bytes, Stream *stream)
    return queue_copy(host_of(to, bytes), host_of(from, bytes), bytes, stream);
END
CALL(cuMemsetD8_v2, Address at, unsigned char value, size_t count) return queue_fill(at, &value, 1, count, nullptr); END
CALL(cuMemsetD16_v2, Address at, unsigned short value, size_t n) return queue_fill(at, &value, 2, n, nullptr); END
CALL(cuMemsetD32_v2, Address at, unsigned value, size_t count) return queue_fill(at, &value, 4, count, nullptr); END
CALL(cuMemsetD8Async, Address at, unsigned char value, size_t count, Stream *stream)
    return queue_fill(at, &value, 1, count, stream);
END
CALL(cuMemsetD16Async, Address at, unsigned short value, size_t count, Stream *stream)
    return queue_fill(at, &value, 2, count, stream);
END
CALL(cuMemsetD32Async, Address at, unsigned value, size_t count, Stream *stream)
    return queue_fill(at, &value, 4, count, stream);
END

// Arrays, textures, surfaces, tensor maps ------------------------------------------------------------------------------

struct ArrayDescriptor { size_t width, height, depth; int format; unsigned channels, flags; };
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
CALL(cuArray3DCreate_v2, Array **made, const ArrayDescriptor *how)
    if (!how->width || (how->channels != 1 && how->channels != 2 && how->channels != 4)) return INVALID_VALUE;
    Array *array = new Array{0, {how->width, how->height, how->depth}, how->format, how->channels, how->flags};
    if (Status status = allocate(&array->place, array_bytes(*array), false)) return status;
    *made = array;
END
CALL_ANYTIME(cuArrayDestroy, Array *array)
    if (context()) wait_for_all();
    release(int(array->place >> SLOT_BITS));
    delete array;
END
CALL(cuMemcpy3DAsync_v2, const Copy3D *copy, Stream *stream)
    struct End { char *at; size_t pitch, height; };
    auto end = [&](int type, char *host, Address device, Array *array, size_t pitch, size_t height) {
        if (type == MEMORY_HOST) return End{host, pitch, height};
        if (type != MEMORY_ARRAY) return End{host_of(device, 1), pitch, height};
        return End{host_of(array->place, 1), array->row(), std::max<size_t>(1, array->extents[1])};
    };
    End from = end(copy->from_type, (char *)copy->from_host, copy->from_device, copy->from_array, copy->from_pitch, copy->from_height);
    End to = end(copy->to_type, copy->to_host, copy->to_device, copy->to_array, copy->to_pitch, copy->to_height);
    if (!from.at || !to.at) return INVALID_VALUE;
    size_t width = copy->width, height = copy->height, depth = copy->depth;
    double takes = moving(width * height * depth);
    return queue(stream, Work{[=](double *time) -> Status {
        for (size_t z = 0; z < depth; z++)
            for (size_t y = 0; y < height; y++)
                memmove(to.at + (z * to.height + y) * to.pitch, from.at + (z * from.height + y) * from.pitch, width);
        *time = takes;
        return SUCCESS;
    }});
END
static Status make_object(Address *handle, const Resource *resource, const void *how) {
    const Array *array = resource->type == 0 ? resource->of.array : nullptr;
    Address place = array ? array->place : resource->of.linear.place;
    size_t bytes = array ? array_bytes(*array) : resource->of.linear.bytes;
    char *host = host_of(place, bytes);
    if (!host) return INVALID_VALUE;
    // Of a CUDA array the format and channels stand where those of linear memory do.
    Resource told = *resource;
    if (array) told.of.linear = {place, array->format, array->channels, bytes};
    size_t none[3] = {0, 0, 0};
    *handle = next_handle += 16;
    return callbacks.texture(*handle, &told, how, host, place, bytes, array ? array->extents : none, array ? array->flags : 0);
}
CALL(cuTexObjectCreate, Address *handle, const Resource *resource, const void *how, const void *)
    return make_object(handle, resource, how);
END
CALL(cuSurfObjectCreate, Address *handle, const Resource *resource) return make_object(handle, resource, nullptr); END
CALL_ANYTIME(cuTexObjectDestroy, Address handle) return callbacks.texture(handle, 0, 0, 0, 0, 0, 0, 0); END
CALL_ANYTIME(cuSurfObjectDestroy, Address handle) return callbacks.texture(handle, 0, 0, 0, 0, 0, 0, 0); END
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
    int slots = 0;
    Module *module = new Module{next_module++, context(), {}};
    int first = next_slot;
    if (Status status = callbacks.load(module->number, image, image_bytes(image), first, &slots)) return status;
    next_slot = first + slots;
    modules.insert(module);
    *made = module;
    return SUCCESS;
}
CALL(cuModuleLoadData, Module **made, const char *image) return load(made, image); END
CALL(cuModuleLoadDataEx, Module **made, const char *image, unsigned, void *, void *) return load(made, image); END
CALL_ANYTIME(cuModuleUnload, Module *) END
CALL(cuModuleGetFunction, Kernel **found, Module *module, const char *name)
    Kernel *&kernel = module->kernels[name];
    if (!kernel) {
        std::unique_ptr<Kernel> made(new Kernel{module, {}});
        if (Status status = callbacks.find(module->number, name, &made->told)) {
            module->kernels.erase(name);
            return status;
        }
        kernel = made.release();
    }
    *found = kernel;
END
CALL(cuModuleGetGlobal_v2, Address *address, size_t *bytes, Module *module, const char *name)
    Address place;
    void *host;
    size_t size;
    if (Status status = callbacks.variable(module->number, name, &place, &host, &size)) return status;
    memories[int(place >> SLOT_BITS)] = Memory{(char *)host, size, 0, context()->device, true};
    if (address) *address = place;
    if (bytes) *bytes = size;
END
CALL(cuFuncGetAttribute, int *value, int attribute, Kernel *kernel)
    if (attribute < 0 || attribute >= 16) return INVALID_VALUE;
    *value = attribute == 8 ? kernel->dynamic_shared : kernel->told.attributes[attribute];
END
CALL(cuFuncSetAttribute, Kernel *kernel, int attribute, int value)
    if (attribute == 8) {
        if (value > cards[context()->device].attributes[97] - kernel->told.attributes[1]) return INVALID_VALUE;
        kernel->dynamic_shared = value;
    } else if (attribute == 14) {
        kernel->large_clusters = value;
    } else {
        return INVALID_VALUE;
    }
END
CALL(cuFuncSetCacheConfig, Kernel *, int) END
// PyCUDA's launches say both again.
CALL(cuFuncSetBlockShape, Kernel *, int, int, int) END
CALL(cuFuncSetSharedSize, Kernel *, unsigned) END

// Streams, events, graphs ----------------------------------------------------------------------------------------------

CALL(cuStreamCreate, Stream **made, unsigned flags)
    *made = new Stream{context()->device, !(flags & 1), {}};
    context()->streams.insert(*made);
END
CALL_ANYTIME(cuStreamDestroy_v2, Stream *stream)
    if (context()) {
        drain(context(), stream, sequence);
        context()->streams.erase(stream);
    }
    delete stream;
END
CALL(cuStreamSynchronize, Stream *stream) return wait_for(stream_of(stream)); END
CALL(cuStreamQuery, Stream *stream) return wait_for(stream_of(stream)); END
CALL(cuStreamWaitEvent, Stream *stream, Event *event, unsigned)
    if (event->stream) return queue(stream, Work{nullptr, event->stream, event->until});
END
CALL(cuEventCreate, Event **made, unsigned) *made = new Event; END
CALL_ANYTIME(cuEventDestroy_v2, Event *event)
    if (context() && event->stream) drain(context(), event->stream, event->until);
    delete event;
END
CALL(cuEventRecord, Event *event, Stream *stream)
    stream = stream_of(stream);
    event->at = -1;
    Context *in = context();
    Status status = queue(stream, Work{[=](double *) -> Status {
        event->at = in->now;
        return SUCCESS;
    }});
    event->stream = stream;
    event->until = sequence;
    return status;
END
static Status reached(Event *event) {
    if (event->stream) drain(context(), event->stream, event->until);
    return context()->failed;
}
CALL(cuEventSynchronize, Event *event) return reached(event); END
CALL(cuEventQuery, Event *event) return reached(event); END
CALL(cuEventElapsedTime_v2, float *milliseconds, Event *start, Event *stop)
    if (!start->stream || !stop->stream) return INVALID_HANDLE;
    if (start->at < 0 || stop->at < 0) return NOT_READY;
    *milliseconds = float((stop->at - start->at) * 1e-6);
END

struct Graph { std::vector<Work> works; };
CALL(cuStreamBeginCapture_v2, Stream *stream, int)
    if (stream_of(stream)->captured) return INVALID_VALUE;
    stream_of(stream)->captured = new std::vector<Work>;
END
CALL(cuStreamEndCapture, Stream *stream, Graph **graph)
    std::unique_ptr<std::vector<Work>> works(stream_of(stream)->captured);
    if (!works) return INVALID_VALUE;
    stream_of(stream)->captured = nullptr;
    *graph = new Graph{*works};
END
CALL(cuGraphInstantiateWithFlags, Graph **ready, Graph *graph, unsigned long long) *ready = new Graph(*graph); END
CALL_ANYTIME(cuGraphDestroy, Graph *graph) delete graph; END
CALL(cuGraphUpload, Graph *, Stream *) END
CALL(cuGraphLaunch, Graph *graph, Stream *stream)
    Context *in = context();
    return queue(stream, Work{[=](double *time) -> Status {
        for (Work &work : graph->works) {
            double takes = 0;
            Status status = work.run && !in->failed ? work.run(&takes) : SUCCESS;
            *time += takes;
            if (status) return status;
        }
        return SUCCESS;
    }});
END

// Launches -------------------------------------------------------------------------------------------------------------

static Status launch(Kernel *kernel, const unsigned *sides, const unsigned *cluster, unsigned shared, Stream *stream,
                     void **parameters, void **extra, bool cooperative) {
    if (!kernel) return INVALID_HANDLE;
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
    if (shared > unsigned(kernel->dynamic_shared)) return INVALID_VALUE;
    if (cluster && cluster[0] * cluster[1] * cluster[2] > (kernel->large_clusters ? 16u : 8u)) return INVALID_VALUE;
    if (cooperative) {
        unsigned long long resident = unsigned(limits[39]) / ((threads + 31) / 32 * 32) * unsigned(limits[16]);
        if ((unsigned long long)sides[0] * sides[1] * sides[2] > resident) return TOO_LARGE;
    }
    std::vector<char> bytes;
    if (extra) {  // a list of keys and values: 1 the buffer, 2 its size
        const char *buffer = nullptr;
        size_t size = 0;
        for (int i = 0; extra[i]; i += 2) {
            if ((size_t)extra[i] == 1) buffer = (const char *)extra[i + 1];
            if ((size_t)extra[i] == 2) size = *(size_t *)extra[i + 1];
        }
        bytes.assign(buffer, buffer + size);
    } else if (kernel->told.parameters) {
        int last = kernel->told.parameters - 1;
        bytes.resize(kernel->told.offsets[last] + kernel->told.sizes[last]);
        for (int i = 0; i <= last; i++)
            memcpy(bytes.data() + kernel->told.offsets[i], parameters[i], kernel->told.sizes[i]);
    }
    Launch what{kernel->module->number, kernel->told.name, {}, {}, shared, nullptr, 0};
    std::copy(sides, sides + 6, what.sides);
    if (cluster) std::copy(cluster, cluster + 3, what.cluster);
    return queue(stream, Work{[=](double *time) -> Status {
        Launch now = what;
        now.parameters = bytes.data();
        now.parameter_bytes = bytes.size();
        Status status = callbacks.launch(&now, time);
        chance ^= chance << 13, chance ^= chance >> 7, chance ^= chance << 17;
        *time *= 1 + 0.01 * (double(chance >> 11) / (1ull << 53));  // no two launches take the same time
        return status;
    }});
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
#define MISSING(name) extern "C" Status name() { return missing(#name); }
#include "missing.inc"
