// The runtime's front end: devices, their properties and limits.
#include "runtime.hpp"

#include <cstdio>
#include <dlfcn.h>

namespace programs {

static bool no_device(int device) { return device < 0 || device >= int(cards.size()); }

// Define a call for a device. Its body can use `card`, the simulated card.
#define OF_DEVICE(name, parameters, result)                                                                            \
    API Status name parameters {                                                                                       \
        return call(#name, [&]() -> Status {                                                                           \
            if (no_device(device))                                                                                     \
                return INVALID_DEVICE;                                                                                 \
            [[maybe_unused]] const Card &card = cards[size_t(device)];                                                 \
            return result;                                                                                             \
        });                                                                                                            \
    }

API Status cudaGetDeviceCount(int *count) {
    CallLock until_the_end;
    *count = start() ? int(cards.size()) : 0;
    return *count ? SUCCESS : leave(__func__, absent());
}

static Status choose(int device) { return current = {primary(device)}, SUCCESS; }
OF_DEVICE(cudaSetDevice, (int device), choose(device))
OF_DEVICE(cudaInitDevice, (int device, unsigned, unsigned), (void(primary(device)), SUCCESS))
CALL(cudaGetDevice, (int *device), device ? (*device = context()->device, SUCCESS) : INVALID_VALUE)
CALL(cudaChooseDevice, (int *device, const void *), (*device = 0, SUCCESS))
CALL_PTSZ(cudaDeviceSynchronize, (), wait_for_all(context()))

API Status cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

static Status reset() {
    Context *gone = context();
    return run_when_idle([=] { destroy(gone), current = {primary(gone->device)}; }), SUCCESS;
}
API Status cudaDeviceReset() {
    CallLock until_the_end;
    Status status = enter(); // an earlier sticky error is ignored, because the reset destroys its context
    return leave(__func__, status == NO_DEVICE || status == NOT_INITIALIZED ? status : reset());
}
API Status cudaThreadExit() { return cudaDeviceReset(); }

static Status attribute_of(int *value, int attribute, const Card &card) {
    if (!value || attribute <= 0)
        return INVALID_VALUE;
    if (attribute < 256 && card.attributes[attribute] >= 0)
        return *value = card.attributes[attribute], SUCCESS;
    return missing(("cudaDeviceGetAttribute of attribute " + std::to_string(attribute)).c_str());
}
OF_DEVICE(cudaDeviceGetAttribute, (int *value, int attribute, int device), attribute_of(value, attribute, card))

// Copy a cudaDeviceProp, which is longer in CUDA 12 than in CUDA 13.
static Status properties_of(char *to, const Card &card, bool is_runtime_12) {
    return memcpy(to, card.properties[is_runtime_12], is_runtime_12 ? 1032 : 1008), SUCCESS;
}
OF_DEVICE(cudaGetDeviceProperties, (char *to, int device), properties_of(to, card, false))
OF_DEVICE(cudaGetDeviceProperties_v2, (char *to, int device), properties_of(to, card, true))

// Versions, names, flags, limits ------------------------------------------------------------------------------------

bool is_runtime_12() {
    static const bool known = [] {
        Dl_info info{};
        return dladdr((void *)&is_runtime_12, &info) && info.dli_fname && strstr(info.dli_fname, "libcudart.so.12");
    }();
    return known;
}
static int version() { return is_runtime_12() ? 12080 : 13000; }
API Status cudaRuntimeGetVersion(int *to) { return *to = version(), SUCCESS; }
API Status cudaDriverGetVersion(int *to) { return *to = version(), SUCCESS; }

OF_DEVICE(cudaDeviceGetPCIBusId, (char *text, int room, int device),
          (snprintf(text, size_t(room), "0000:%02x:00.0", device), SUCCESS))
static Status device_at(int *device, const char *text) {
    unsigned domain, bus, slot;
    int fields = sscanf(text, "%x:%x:%x", &domain, &bus, &slot);
    *device = int(fields == 2 ? domain : bus);
    return fields < 2 || no_device(*device) ? INVALID_VALUE : SUCCESS;
}
CALL(cudaDeviceGetByPCIBusId, (int *device, const char *text), device_at(device, text))

static unsigned flags;
API Status cudaSetDeviceFlags(unsigned set) { return flags = set, SUCCESS; }
// 8: host memory can be mapped into the device's address space
API Status cudaGetDeviceFlags(unsigned *to) { return *to = flags | 8, SUCCESS; }

// There is one card, which is not a peer of itself.
static Status can_access_peer(int *can, int peer) { return no_device(peer) ? INVALID_DEVICE : (*can = 0, SUCCESS); }
OF_DEVICE(cudaDeviceCanAccessPeer, (int *can, int device, int peer), can_access_peer(can, peer))
OF_DEVICE(cudaDeviceGetP2PAttribute, (int *value, int, int device, int peer), can_access_peer(value, peer))
CALL(cudaDeviceEnablePeerAccess, (int, unsigned), INVALID_DEVICE)
CALL(cudaDeviceDisablePeerAccess, (int), INVALID_DEVICE)

static size_t limits[7] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0}; // indexed by cudaLimit
CALL(cudaDeviceGetLimit, (size_t *value, unsigned limit), limit < 7 ? (*value = limits[limit], SUCCESS) : INVALID_VALUE)
CALL(cudaDeviceSetLimit, (unsigned limit, size_t value), limit < 7 ? (limits[limit] = value, SUCCESS) : INVALID_VALUE)
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     (void(least && (*least = 0)), void(greatest && (*greatest = -5)), SUCCESS))
CALL(cudaDeviceGetCacheConfig, (int *value), (*value = 0, SUCCESS))
CALL(cudaDeviceGetSharedMemConfig, (int *value), (*value = 1, SUCCESS))

// Calls that have no effect here; their parameters are not read.
#define NO_EFFECT(name) CALL(name, (), SUCCESS)
// clang-format off
NO_EFFECT(cudaDeviceSetCacheConfig) NO_EFFECT(cudaDeviceSetSharedMemConfig) NO_EFFECT(cudaCtxResetPersistingL2Cache)
NO_EFFECT(cudaProfilerStart) NO_EFFECT(cudaProfilerStop) NO_EFFECT(cudaSetValidDevices) NO_EFFECT(cudaDeviceGraphMemTrim)
NO_EFFECT(cudaDeviceSetMemPool) NO_EFFECT(cudaMemPoolDestroy) NO_EFFECT(cudaMemPoolTrimTo)
NO_EFFECT(cudaMemPoolSetAccess) NO_EFFECT(cudaStreamAttachMemAsync) ONCE_MORE(cudaStreamAttachMemAsync, _ptsz)

} // namespace programs
