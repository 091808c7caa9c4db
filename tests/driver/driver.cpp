// A CUDA driver without a GPU: libcuda.so.1 for programs in this Python process, whose launches run in the simulator.
//
// The front of native/programs (its core says how memory, streams and time are meant) that CUDA's driver API is. What
// needs Python (loading a module, launching) is called back; host.py sets these callbacks when cuInit starts it in the
// process's interpreter.
//
// Every call is listed once, by CALL (in a context), CALL_STARTED (after cuInit) or CALL_ANYTIME. These let one thread in
// at a time, count the call, and give it the fault that CUDABENCH_DRIVER_FAIL asks for. A call of the list `missing.inc`
// that stands nowhere here says its name and returns CUDA_ERROR_NOT_SUPPORTED.

#include "core.hpp"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>

using namespace programs;

static std::map<int, Context *> primaries;
static std::map<std::string, int> calls;
static bool started;

// Python ---------------------------------------------------------------------------------------------------------------

template <class T> static T python(const char *name) { return (T)dlsym(RTLD_DEFAULT, name); }

bool programs::callable() {
    static auto initialized = python<int (*)()>("Py_IsInitialized");
    static auto finalizing = python<int (*)()>("Py_IsFinalizing") ? python<int (*)()>("Py_IsFinalizing")
                                                                  : python<int (*)()>("_Py_IsFinalizing");
    return initialized && initialized() && !(finalizing && finalizing());
}

// Whoever has it may be about to call Python, for which it needs the lock that this thread may hold.
void programs::lock(std::recursive_mutex &mutex) {
    static auto has_lock = python<int (*)()>("PyGILState_Check");
    static auto leave = python<void *(*)()>("PyEval_SaveThread");
    static auto take = python<void (*)(void *)>("PyEval_RestoreThread");
    void *state = has_lock && has_lock() ? leave() : nullptr;
    mutex.lock();
    if (state) take(state);
}

void programs::interrupt() {
    static auto interrupt = python<void (*)()>("PyErr_SetInterrupt");
    interrupt();
}

CallStack programs::call_stack() { return {}; }

char *programs::map_memory(int, size_t bytes, Kind kind, const CallStack &) {
    void *host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (host == MAP_FAILED) return nullptr;
    // A GPU's memory is as others left it.
    if (kind == DEVICE) memset(host, 0xA5, std::min(bytes, size_t(64) << 20));
    return (char *)host;
}

void programs::unmap_memory(int, const Memory &memory) {
    if (memory.kind == DEVICE || memory.kind == PINNED) munmap(memory.host, memory.bytes);
}

void programs::copy_queued(Address, size_t, const CallStack &) {}
void programs::copy_done(Address, size_t) {}

int programs::host_slot() { return free_slot(); }

// A launch has ended when its callback returns.
bool programs::runs_beside() { return false; }
Status programs::finish_launches(double *) { return SUCCESS; }

// Calls ----------------------------------------------------------------------------------------------------------------

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
        CallLock until_the_end;                     \
        if (Status status = enters(#name)) return status;
#define CALL_ANYTIME(name, ...) CALL_BY(enter, name, __VA_ARGS__)
#define CALL_STARTED(name, ...) CALL_BY(after_start, name, __VA_ARGS__)
#define CALL(name, ...) CALL_BY(in_context, name, __VA_ARGS__)
#define END return SUCCESS; }

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
    CallLock one;
    return calls[name];
}

// Start and devices ----------------------------------------------------------------------------------------------------

CALL_ANYTIME(cuInit, unsigned)
    static Status found = UNKNOWN;
    if (started) return found;
    auto ensure = python<int (*)()>("PyGILState_Ensure");
    auto leave = python<void (*)(int)>("PyGILState_Release");
    auto run = python<int (*)(const char *, void *)>("PyRun_SimpleStringFlags");
    if (!callable() || !ensure || !leave || !run) {
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

CALL_ANYTIME(cuGetErrorName, int error, const char **text)
    *text = error_of(error) ? error_of(error)->driver : nullptr;
    if (!*text) return INVALID_VALUE;
END
CALL_ANYTIME(cuGetErrorString, int error, const char **text)
    *text = error_of(error) && error_of(error)->driver ? error_of(error)->text : nullptr;
    if (!*text) return INVALID_VALUE;
END

// Contexts -------------------------------------------------------------------------------------------------------------

static Status create_context(Context **made, int device) {
    OF_DEVICE
    current.push_back(*made = new_context(device));
    return SUCCESS;
}
CALL_STARTED(cuCtxCreate_v4, Context **made, void *, unsigned, int device) return create_context(made, device); END
CALL_STARTED(cuCtxCreate_v2, Context **made, unsigned, int device) return create_context(made, device); END
CALL_STARTED(cuCtxAttach, Context **found, unsigned)
    if (!context()) return INVALID_CONTEXT;
    context()->references++;
    *found = context();
END
static Status detach(Context *one) {
    if (!contexts.count(one)) return INVALID_CONTEXT;
    if (--one->references > 0) return SUCCESS;
    return run_when_idle([=] { destroy(one); });
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
    if (there) there->references++;
    else there = new_context(device);
    *found = there;
END
CALL_STARTED(cuDevicePrimaryCtxRelease_v2, int device) OF_DEVICE
    Context *there = primaries[device];
    if (!there) return INVALID_CONTEXT;
    if (there->references == 1) primaries.erase(device);
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
    return run_when_idle([slot = found->first] { finish_all_work(), release(slot); });
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
    return run_when_idle([slot] { finish_all_work(), release(slot); });
END
CALL(cuMemHostRegister_v2, void *host, size_t bytes, unsigned)
    if (!host || !bytes) return INVALID_VALUE;
    if (pinned_slot(host) || pinned_slot((char *)host + bytes - 1)) return ALREADY_REGISTERED;
    add_memory(free_slot(), Memory{(char *)host, bytes, context(), REGISTERED, {}});
END
CALL_STARTED(cuMemHostUnregister, void *host)
    int slot = pinned_slot(host);
    if (!slot || memories[slot].kind != REGISTERED || memories[slot].host != host) return NOT_REGISTERED;
    return run_when_idle([slot] { finish_all_work(), release(slot); });
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
    return copy_box(CopyEnd{to, to_host, 0, 0}, CopyEnd{from, (char *)from_host, 0, 0}, bytes, 1, 1, stream, wait);
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
CALL(cuArray3DCreate_v2, Array **made, const ArrayDescriptor *how) return make_array(made, *how); END
CALL_STARTED(cuArrayDestroy, Array *handle) return destroy_array(handle); END

static Status copy_3d(const Copy3D &how, Stream *stream, bool wait) {
    size_t box[3] = {how.width, how.height, how.depth};
    size_t from[3] = {how.from_x, how.from_y, how.from_z}, to[3] = {how.to_x, how.to_y, how.to_z};
    Status status = SUCCESS;
    CopyEnd source = end_of(how.from_type, how.from_host, how.from_device, how.from_array, from, how.from_pitch,
                        how.from_height, box, &status);
    CopyEnd target = end_of(how.to_type, how.to_host, how.to_device, how.to_array, to, how.to_pitch, how.to_height, box,
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
CALL(cuTexObjectCreate, Address *handle, const Resource *resource, const void *how, const void *)
    return make_object(handle, resource, how);
END
CALL(cuSurfObjectCreate, Address *handle, const Resource *resource) return make_object(handle, resource, nullptr); END
CALL_STARTED(cuTexObjectDestroy, Address handle) return destroy_object(handle); END
CALL_STARTED(cuSurfObjectDestroy, Address handle) return destroy_object(handle); END
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
CALL(cuModuleLoadData, Module **made, const char *image)
    return image ? load(made, image, image_bytes(image)) : INVALID_VALUE;
END
CALL(cuModuleLoadDataEx, Module **made, const char *image, unsigned, void *, void *)
    return image ? load(made, image, image_bytes(image)) : INVALID_VALUE;
END
CALL_STARTED(cuModuleUnload, Module *module)
    if (!find_handle(module)) return INVALID_HANDLE;
    return run_when_idle([=] {
        finish_all_work();
        if (find_handle(module)) unload(module);
    });
END
CALL(cuModuleGetFunction, Kernel **found, Module *module, const char *name) return find_kernel(found, module, name); END
CALL(cuModuleGetGlobal_v2, Address *address, size_t *bytes, Module *module, const char *name)
    return find_variable(address, bytes, module, name);
END
CALL(cuFuncGetAttribute, int *value, int attribute, Kernel *kernel)
    return find_handle(kernel) ? kernel_attribute(value, attribute, kernel) : INVALID_HANDLE;
END
CALL(cuFuncSetAttribute, Kernel *kernel, int attribute, int value)
    return find_handle(kernel) ? set_kernel_attribute(kernel, attribute, value) : INVALID_HANDLE;
END
CALL(cuFuncSetCacheConfig, Kernel *, int) END
// PyCUDA's launches say both again.
CALL(cuFuncSetBlockShape, Kernel *, int, int, int) END
CALL(cuFuncSetSharedSize, Kernel *, unsigned) END

// Streams, events, graphs ----------------------------------------------------------------------------------------------

CALL(cuStreamCreate, Stream **made, unsigned flags) return make_stream(made, flags, 0); END
CALL_STARTED(cuStreamDestroy_v2, Stream *stream) return destroy_stream(stream); END
CALL(cuStreamSynchronize, Stream *handle)
    auto stream = stream_of(handle);
    return stream ? wait_for(stream.get(), sequence) : INVALID_HANDLE;
END
CALL(cuStreamQuery, Stream *handle)
    auto stream = stream_of(handle);
    return stream ? wait_for(stream.get(), sequence) : INVALID_HANDLE;
END
CALL(cuStreamWaitEvent, Stream *handle, Event *event, unsigned) return stream_wait_event(handle, event); END
CALL(cuEventCreate, Event **made, unsigned flags) return make_event(made, flags); END
CALL_STARTED(cuEventDestroy_v2, Event *event) return destroy_event(event); END
CALL(cuEventRecord, Event *handle, Stream *on) return record(handle, on); END
CALL(cuEventSynchronize, Event *event) return wait_for_event(event); END
CALL(cuEventQuery, Event *event) return wait_for_event(event); END
CALL(cuEventElapsedTime_v2, float *milliseconds, Event *start, Event *stop)
    return elapsed(milliseconds, start, stop);
END

CALL(cuStreamBeginCapture_v2, Stream *handle, int) return begin_capture(handle); END
CALL(cuStreamEndCapture, Stream *handle, Graph **graph) return end_capture(handle, graph); END
CALL(cuGraphInstantiateWithFlags, Graph **ready, Graph *graph, unsigned long long)
    return copy_graph(ready, graph, true);
END
CALL_STARTED(cuGraphDestroy, Graph *graph) if (!live<Graph>.erase(graph)) return INVALID_HANDLE; END
CALL_STARTED(cuGraphExecDestroy, Graph *graph) if (!live<Graph>.erase(graph)) return INVALID_HANDLE; END
CALL(cuGraphUpload, Graph *graph, Stream *) if (!find_handle(graph)) return INVALID_HANDLE; END
CALL(cuGraphLaunch, Graph *handle, Stream *on) return launch_graph(handle, on); END

// Launches -------------------------------------------------------------------------------------------------------------

static Status launch(Kernel *handle, const unsigned *sides, const unsigned *cluster, unsigned shared, Stream *on,
                     void **parameters, void **extra, bool cooperative) {
    Status status = programs::launch(handle, Geometry{sides, cluster, shared, cooperative}, on, parameters, extra);
    return status == INVALID_CONFIGURATION ? INVALID_VALUE : status;
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
#define MISSING(name) extern "C" Status name() { CallLock one; return missing(#name); }
#include "missing.inc"
