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
    CoreLock guard;
    *count = start() ? int(cards.size()) : 0;
    return *count ? SUCCESS : leave(__func__, absent());
}

static Status choose(int device) { return current = {primary(device)}, SUCCESS; }
OF_DEVICE(cudaSetDevice, (int device), choose(device))
OF_DEVICE(cudaInitDevice, (int device, unsigned, unsigned), (void(primary(device)), SUCCESS))
CALL(cudaGetDevice, (int *device), device ? (*device = context()->device, SUCCESS) : INVALID_VALUE)
CALL(cudaChooseDevice, (int *device, const void *), (*device = 0, SUCCESS))
CALL(cudaSetValidDevices, (int *, int), SUCCESS)
CALL_PTSZ(cudaDeviceSynchronize, (), wait_for_all(context()))

API Status cudaThreadSynchronize() { return cudaDeviceSynchronize(); }

static Status reset() {
    Context *gone = context();
    return at_rest([=] { destroy(gone), current = {primary(gone->device)}; }), SUCCESS;
}
API Status cudaDeviceReset() {
    CoreLock guard;
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

// Properties --------------------------------------------------------------------------------------------------------

// The fields of cudaDeviceProp that follow the memory's size, in order. Each field is given by its device attribute and
// has eight bytes or four. OLD: a field of four bytes that CUDA 12 has and CUDA 13 does not.
enum Width { FOUR, EIGHT, OLD };
struct Field {
    Width width;
    std::vector<int> attributes;
};
static const std::vector<Field> &fields() {
    static auto &all = *new std::vector<Field>{
        {EIGHT, {8}},
        {FOUR, {12, 10}},
        {EIGHT, {11}},
        {FOUR, {1, 2, 3, 4, 5, 6, 7}},
        {OLD, {13}},
        {EIGHT, {9}},
        {FOUR, {75, 76}},
        {EIGHT, {14, 51}},
        {OLD, {15}},
        {FOUR, {16}},
        {OLD, {17}},
        {FOUR, {18, 19}},
        {OLD, {20}},
        {FOUR, {21, 77}},
        {OLD, {69}},
        {FOUR, {22, 23, 73, 74, 70, 71, 72, 45, 46, 24, 25, 26, 47, 48, 49, 52, 42, 43, 27,
                28, 29, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 68}},
        {EIGHT, {30}},
        {FOUR, {31, 32, 33, 34, 50, 35, 40, 41}},
        {OLD, {36}},
        {FOUR, {37, 38, 108, 39, 78, 79, 80}},
        {EIGHT, {81}},
        {FOUR, {82, 83, 84, 85, 86}},
        {OLD, {87}},
        {FOUR, {88, 89, 90, 91, 95}},
        {OLD, {96}},
        {EIGHT, {97}},
        {FOUR, {100, 101, 106, 109}},
        {EIGHT, {111}},
        {FOUR, {99, 112, 113, 114, 115, 116, 117, 118, 119, 121, 125, 120, 129}},
    };
    return all;
}

// Fill a cudaDeviceProp. In CUDA 13 it has 1008 bytes, in CUDA 12 it has 1032. The last fields (device numbers and
// reserved bytes) stay 0.
static Status properties_of(char *to, const Card &card, bool built_with_cuda12) {
    memset(to, 0, built_with_cuda12 ? 1032 : 1008);
    snprintf(to, 256, "%.127s", card.name);
    memcpy(to + 256, card.uuid, 16);
    memcpy(to + 288, &card.memory, 8);
    size_t at = 296;
    for (const Field &field : fields())
        for (int attribute : field.attributes) {
            int value = std::max(0, card.attributes[attribute]);
            size_t whole = size_t(value), bytes = field.width == EIGHT ? 8 : 4;
            if (field.width == OLD && !built_with_cuda12)
                continue;
            at = (at + bytes - 1) / bytes * bytes;
            memcpy(to + at, bytes == 8 ? (void *)&whole : (void *)&value, bytes);
            at += bytes;
        }
    return SUCCESS;
}
OF_DEVICE(cudaGetDeviceProperties, (char *to, int device), properties_of(to, card, false))
OF_DEVICE(cudaGetDeviceProperties_v2, (char *to, int device), properties_of(to, card, true))

// Versions, names, flags, limits ------------------------------------------------------------------------------------

bool built_with_cuda12() {
    static const bool known = [] {
        Dl_info info{};
        return dladdr((void *)&built_with_cuda12, &info) && info.dli_fname && strstr(info.dli_fname, "libcudart.so.12");
    }();
    return known;
}
static int version() { return built_with_cuda12() ? 12080 : 13000; }
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

static std::set<std::pair<int, int>> peers;
static Status can_reach(int *can, int device, int peer) {
    return no_device(peer) ? INVALID_DEVICE : (*can = device != peer, SUCCESS);
}
static Status reach(int device, bool wanted) {
    std::pair<int, int> pair{context()->device, device};
    if (device == context()->device)
        return INVALID_DEVICE;
    if (wanted)
        return peers.insert(pair).second ? SUCCESS : PEER_IS_ENABLED;
    return peers.erase(pair) ? SUCCESS : PEER_NOT_ENABLED;
}
OF_DEVICE(cudaDeviceCanAccessPeer, (int *can, int device, int peer), can_reach(can, device, peer))
OF_DEVICE(cudaDeviceEnablePeerAccess, (int device, unsigned), reach(device, true))
OF_DEVICE(cudaDeviceDisablePeerAccess, (int device), reach(device, false))
OF_DEVICE(cudaDeviceGetP2PAttribute, (int *value, int, int device, int peer), can_reach(value, device, peer))

static size_t limits[7] = {1024, 1 << 20, 8 << 20, 2, 2048, 64, 0}; // indexed by cudaLimit
CALL(cudaDeviceGetLimit, (size_t *value, unsigned limit), limit < 7 ? (*value = limits[limit], SUCCESS) : INVALID_VALUE)
CALL(cudaDeviceSetLimit, (unsigned limit, size_t value), limit < 7 ? (limits[limit] = value, SUCCESS) : INVALID_VALUE)
CALL(cudaDeviceGetStreamPriorityRange, (int *least, int *greatest),
     (void(least && (*least = 0)), void(greatest && (*greatest = -5)), SUCCESS))
CALL(cudaDeviceGetCacheConfig, (int *value), (*value = 0, SUCCESS))
CALL(cudaDeviceSetCacheConfig, (int), SUCCESS)
CALL(cudaDeviceGetSharedMemConfig, (int *value), (*value = 1, SUCCESS))
CALL(cudaDeviceSetSharedMemConfig, (int), SUCCESS)
CALL(cudaCtxResetPersistingL2Cache, (), SUCCESS)
CALL(cudaProfilerStart, (), SUCCESS)
CALL(cudaProfilerStop, (), SUCCESS)

} // namespace programs
