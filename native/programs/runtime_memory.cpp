// The runtime's front: allocations, copies and fills, and what the program does wrong with them.
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>

namespace programs {

enum Direction { HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, EITHER }; // cudaMemcpyKind

struct Extent {
    size_t width, height, depth;
};
struct Pitched { // cudaPitchedPtr
    char *place;
    size_t pitch, width, height;
};
struct Box { // in bytes, rows and layers
    size_t sides[3];
};

static bool only_of_device(const void *pointer) { return Address(pointer) >> SLOT_BITS >= 128; }
static bool of_device(const void *pointer) { return only_of_device(pointer) || memory_at(Address(pointer)); }

static std::string said(size_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

// Name what hinders that bytes of the device are read or written.
static Status wrong_memory(Address address, size_t bytes, const char *verb) {
    const Memory *memory = memory_at(address);
    auto gone = freed.find(int(address >> SLOT_BITS));
    size_t offset = address & (SLOT - 1);
    std::string words = calling + std::string(" ") + verb + " " + said(bytes) + " ";
    if (memory)
        finding("copy-outside", words + "from byte " + std::to_string(offset) + " of an allocation of " +
                said(memory->bytes) + ".", here(), memory->place);
    else if (gone != freed.end())
        finding("use-after-free", words + "of memory that was freed.", here(), gone->second);
    return INVALID_VALUE;
}

// Memory of the device, and nothing else, is asked for.
static Status check_device(const void *pointer, size_t bytes, const char *verb) {
    if (host_of(Address(pointer), bytes))
        return SUCCESS;
    if (of_device(pointer) || !pointer)
        return wrong_memory(Address(pointer), bytes, verb);
    finding("host-pointer", calling + std::string(" is given a pointer to the host's memory, and needs one to the device's."),
            here());
    return INVALID_VALUE;
}

// One end of a copy: what lies at a pointer, which the direction may say to be the device's or the host's.
static Status end_at(End *end, const void *pointer, bool device, bool either, size_t pitch, size_t rows, const Box &box,
                     const char *verb) {
    if (!pointer)
        return INVALID_VALUE;
    if (box.sides[1] > 1 && pitch < box.sides[0])
        return INVALID_PITCH;
    *end = of_device(pointer) ? End{Address(pointer), nullptr, pitch, rows} : End{0, (char *)pointer, pitch, rows};
    bool pinned = !end->device && pinned_slot(pointer);
    if (!either && device ? !end->device && !pinned : !either && only_of_device(pointer)) {
        finding("copy-direction", calling + std::string(" ") + verb + (device ?
                " memory of the device by its direction, and is given a pointer to the host's." :
                " memory of the host by its direction, and is given a pointer to the device's."), here());
        return INVALID_VALUE;
    }
    if (!end->first(box.sides))
        return wrong_memory(end->device, ((box.sides[2] - 1) * rows + box.sides[1] - 1) * pitch + box.sides[0], verb);
    return SUCCESS;
}

static Status copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        int direction, Stream *stream, bool wait) {
    Box box{{width, height, 1}};
    End target, source;
    bool either = direction == EITHER;
    if (direction < 0 || direction > EITHER)
        return 21; // cudaErrorInvalidMemcpyDirection
    if (!width || !height)
        return SUCCESS;
    if (Status status = end_at(&target, to, direction & 1, either, to_pitch, height, box, "writes"))
        return status;
    if (Status status = end_at(&source, from, direction & 2, either, from_pitch, height, box, "reads"))
        return status;
    wait = wait && !(target.device && source.device);
    return copy_box(target, source, width, height, 1, stream, wait);
}

static Status copy(void *to, const void *from, size_t bytes, int direction, Stream *stream, bool wait) {
    return copy_rows(to, bytes, from, bytes, bytes, 1, direction, stream, wait);
}

CALL(cudaMemcpy, (void *to, const void *from, size_t bytes, int direction), copy(to, from, bytes, direction, 0, true))
ONCE_MORE(cudaMemcpy, _ptds)
CALL(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, Stream *stream),
     copy(to, from, bytes, direction, stream, false))
ONCE_MORE(cudaMemcpyAsync, _ptsz)
CALL(cudaMemcpyPeer, (void *to, int, const void *from, int, size_t bytes), copy(to, from, bytes, EITHER, 0, true))
CALL(cudaMemcpyPeerAsync, (void *to, int, const void *from, int, size_t bytes, Stream *stream),
     copy(to, from, bytes, EITHER, stream, false))
CALL(cudaMemcpy2D, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int direction),
     copy_rows(to, to_pitch, from, from_pitch, width, height, direction, nullptr, true))
ONCE_MORE(cudaMemcpy2D, _ptds)
CALL(cudaMemcpy2DAsync, (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
     int direction, Stream *stream),
     copy_rows(to, to_pitch, from, from_pitch, width, height, direction, stream, false))
ONCE_MORE(cudaMemcpy2DAsync, _ptsz)

// Copies to and from variables of the program's.
static Status copy_symbol(bool to_symbol, const void *symbol, size_t offset, const void *other, size_t bytes, int direction,
                          Stream *stream, bool wait) {
    Address place;
    size_t room;
    if (Status status = symbol_place(&place, &room, symbol))
        return status;
    auto at = (void *)(place + offset);
    return to_symbol ? copy(at, other, bytes, direction, stream, wait) : copy((void *)other, at, bytes, direction, stream, wait);
}
CALL(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t bytes, size_t offset, int direction),
     copy_symbol(true, symbol, offset, from, bytes, direction, nullptr, true))
ONCE_MORE(cudaMemcpyToSymbol, _ptds)
CALL(cudaMemcpyToSymbolAsync,
     (const void *symbol, const void *from, size_t bytes, size_t offset, int direction, Stream *stream),
     copy_symbol(true, symbol, offset, from, bytes, direction, stream, false))
ONCE_MORE(cudaMemcpyToSymbolAsync, _ptsz)
CALL(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t bytes, size_t offset, int direction),
     copy_symbol(false, symbol, offset, to, bytes, direction, nullptr, true))
ONCE_MORE(cudaMemcpyFromSymbol, _ptds)
CALL(cudaMemcpyFromSymbolAsync, (void *to, const void *symbol, size_t bytes, size_t offset, int direction, Stream *stream),
     copy_symbol(false, symbol, offset, to, bytes, direction, stream, false))
ONCE_MORE(cudaMemcpyFromSymbolAsync, _ptsz)

// Fills ----------------------------------------------------------------------------------------------------------------

static Status set(void *at, size_t pitch, int value, size_t width, size_t rows, Stream *stream) {
    unsigned char byte = (unsigned char)value;
    if (!width || !rows)
        return SUCCESS;
    if (rows > 1 && pitch < width)
        return INVALID_VALUE;
    if (Status status = check_device(at, (rows - 1) * pitch + width, "writes"))
        return status;
    return fill(Address(at), pitch, &byte, 1, width, rows, stream);
}
// Layers follow each other where nothing lies between the rows of one and those of the next.
static Status set_layers(const Pitched &at, int value, const Extent &extent, Stream *stream) {
    for (size_t layer = 0; layer < extent.depth; layer++)
        if (Status status = set(at.place + layer * at.pitch * at.height, at.pitch, value, extent.width, extent.height, stream))
            return status;
    return SUCCESS;
}
CALL(cudaMemset, (void *at, int value, size_t bytes), set(at, 0, value, bytes, 1, nullptr))
ONCE_MORE(cudaMemset, _ptds)
CALL(cudaMemsetAsync, (void *at, int value, size_t bytes, Stream *stream), set(at, 0, value, bytes, 1, stream))
ONCE_MORE(cudaMemsetAsync, _ptsz)
CALL(cudaMemset2D, (void *at, size_t pitch, int value, size_t width, size_t height),
     set(at, pitch, value, width, height, nullptr))
ONCE_MORE(cudaMemset2D, _ptds)
CALL(cudaMemset2DAsync, (void *at, size_t pitch, int value, size_t width, size_t height, Stream *stream),
     set(at, pitch, value, width, height, stream))
ONCE_MORE(cudaMemset2DAsync, _ptsz)
CALL(cudaMemset3D, (Pitched at, int value, Extent extent), set_layers(at, value, extent, nullptr))
ONCE_MORE(cudaMemset3D, _ptds)
CALL(cudaMemset3DAsync, (Pitched at, int value, Extent extent, Stream *stream), set_layers(at, value, extent, stream))
ONCE_MORE(cudaMemset3DAsync, _ptsz)

// Allocations ----------------------------------------------------------------------------------------------------------

static Status give(void **pointer, size_t bytes, Kind kind) {
    if (!pointer || (!bytes && kind == MANAGED))
        return INVALID_VALUE;
    *pointer = nullptr;
    return bytes ? allocate((Address *)pointer, bytes, kind) : SUCCESS;
}

static Status give_rows(void **pointer, size_t *pitch, size_t width, size_t rows) {
    if (!pointer || !pitch)
        return INVALID_VALUE;
    if (width > SLOT || rows > SLOT)
        return OUT_OF_MEMORY;
    *pitch = (width + 511) / 512 * 512;
    return rows && *pitch > SLOT / rows ? OUT_OF_MEMORY : give(pointer, *pitch * rows, DEVICE);
}

static Status give_layers(Pitched *made, const Extent &extent) {
    made->width = extent.width, made->height = extent.height;
    return give_rows((void **)&made->place, &made->pitch, extent.width, extent.height * extent.depth);
}

// Which allocation begins at a pointer that is to be freed.
static Status to_free(int *slot, const void *pointer, bool of_host) {
    const Memory *memory = memory_at(Address(pointer));
    auto gone = freed.find(*slot = int(Address(pointer) >> SLOT_BITS));
    bool begins = !(Address(pointer) & (SLOT - 1));
    if (!memory && gone != freed.end() && begins)
        finding("double-free", calling + std::string(" frees memory that was freed before."), here(), gone->second);
    bool fits = memory && begins && (of_host ? memory->kind == PINNED : memory->kind == DEVICE || memory->kind == MANAGED);
    return fits ? SUCCESS : INVALID_VALUE;
}

static Status take_back(const void *pointer, bool of_host) {
    int slot;
    if (!pointer)
        return SUCCESS;
    if (Status status = to_free(&slot, pointer, of_host))
        return status;
    return at_rest([=] { finish_everything(), release(slot); });
}

static Status take_back_in_order(const void *pointer, Stream *handle) {
    int slot;
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    if (Status status = to_free(&slot, pointer, false))
        return status;
    return queue(stream, Work{[=](double *) -> Status { return release(slot), SUCCESS; }, nullptr});
}

CALL(cudaMalloc, (void **pointer, size_t bytes), give(pointer, bytes, DEVICE))
CALL(cudaMallocManaged, (void **pointer, size_t bytes, unsigned), give(pointer, bytes, MANAGED))
CALL(cudaMallocHost, (void **pointer, size_t bytes), give(pointer, bytes, PINNED))
CALL(cudaHostAlloc, (void **pointer, size_t bytes, unsigned), give(pointer, bytes, PINNED))
CALL(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t rows), give_rows(pointer, pitch, width, rows))
CALL(cudaMalloc3D, (Pitched * made, Extent extent), give_layers(made, extent))
CALL(cudaMallocAsync, (void **pointer, size_t bytes, Stream *), give(pointer, bytes, DEVICE))
ONCE_MORE(cudaMallocAsync, _ptsz)
CALL(cudaMallocFromPoolAsync, (void **pointer, size_t bytes, void *, Stream *), give(pointer, bytes, DEVICE))
ONCE_MORE(cudaMallocFromPoolAsync, _ptsz)
CALL(cudaFree, (void *pointer), take_back(pointer, false))
CALL(cudaFreeHost, (void *pointer), take_back(pointer, true))
CALL(cudaFreeAsync, (void *pointer, Stream *stream), take_back_in_order(pointer, stream))
ONCE_MORE(cudaFreeAsync, _ptsz)

static Status page_lock(char *host, size_t bytes) {
    if (!host || !bytes)
        return INVALID_VALUE;
    if (pinned_slot(host) || pinned_slot(host + bytes - 1))
        return ALREADY_REGISTERED;
    return add_registered(free_slot(), host, bytes, here()) ? SUCCESS : OUT_OF_MEMORY;
}
static Status unlock(const void *host) {
    int slot = pinned_slot(host);
    if (!slot || memories[slot].kind != REGISTERED || memories[slot].host != host)
        return NOT_REGISTERED;
    return at_rest([=] { finish_everything(), release(slot); });
}
static Status device_pointer(void **pointer, const char *host) {
    int slot = pinned_slot(host);
    if (!slot)
        return INVALID_VALUE;
    *pointer = (void *)((Address(slot) << SLOT_BITS) + Address(host - memories[slot].host));
    return SUCCESS;
}
CALL(cudaHostRegister, (void *host, size_t bytes, unsigned), page_lock((char *)host, bytes))
CALL(cudaHostUnregister, (void *host), unlock(host))
CALL(cudaHostGetDevicePointer, (void **pointer, void *host, unsigned), device_pointer(pointer, (char *)host))
CALL(cudaHostGetFlags, (unsigned *flags, void *host), pinned_slot(host) ? (*flags = 2, SUCCESS) : INVALID_VALUE)

struct PointerAttributes {
    int type, device; // 0: of the host, 1: page-locked, 2: of the device, 3: managed
    const void *of_device, *of_host;
    long rest[8];
};
static Status pointer_attributes(PointerAttributes *to, const void *pointer) {
    const Memory *memory = memory_at(Address(pointer));
    int slot = memory ? 0 : pinned_slot(pointer);
    *to = {0, -2, nullptr, pointer, {}};
    if (only_of_device(pointer) && !memory)
        return INVALID_VALUE;
    if (slot)
        memory = &memories[slot];
    if (!memory)
        return SUCCESS;
    *to = {memory->of_host() ? 1 : memory->kind == MANAGED ? 3 : 2, memory->context->device, pointer, pointer, {}};
    if (slot)
        to->of_device = (void *)((Address(slot) << SLOT_BITS) + Address((char *)pointer - memory->host));
    if (to->type == 2)
        to->of_host = nullptr;
    return SUCCESS;
}
CALL(cudaPointerGetAttributes, (PointerAttributes * to, const void *pointer),
     to ? pointer_attributes(to, pointer) : INVALID_VALUE)

static Status room(size_t *left, size_t *all) {
    *all = cards[size_t(context()->device)].memory;
    *left = *all - used(context()->device);
    return SUCCESS;
}
CALL(cudaMemGetInfo, (size_t * left, size_t *all), room(left, all))
// Advice: the memory is one.
CALL(cudaMemAdvise, (const void *at, size_t bytes), check_device(at, bytes, "advises"))
CALL(cudaMemAdvise_v2, (const void *at, size_t bytes), check_device(at, bytes, "advises"))
CALL(cudaMemPrefetchAsync, (const void *at, size_t bytes), check_device(at, bytes, "moves"))
ONCE_MORE(cudaMemPrefetchAsync, _ptsz)
CALL(cudaMemPrefetchAsync_v2, (const void *at, size_t bytes), check_device(at, bytes, "moves"))
ONCE_MORE(cudaMemPrefetchAsync_v2, _ptsz)
CALL(cudaStreamAttachMemAsync, (Stream *, void *, size_t, unsigned), SUCCESS)
ONCE_MORE(cudaStreamAttachMemAsync, _ptsz)

// Pools: memory is given at once, by all alike.
static std::map<int, uint64_t> pool_attributes;
static Status pool_attribute(int attribute, void *value, bool set) {
    if (attribute < 1 || attribute > 8)
        return INVALID_VALUE;
    size_t bytes = attribute < 4 ? 4 : 8; // cudaMemPoolAttr: three switches, then sizes
    if (attribute == 5 || attribute == 7)
        pool_attributes[attribute] = used(context()->device);
    if (set)
        memcpy(&pool_attributes[attribute], value, bytes);
    else
        memcpy(value, &pool_attributes[attribute], bytes);
    return SUCCESS;
}
static Status the_pool(void **pool) { return *pool = &pool_attributes, SUCCESS; }
CALL(cudaDeviceGetDefaultMemPool, (void **pool, int), the_pool(pool))
CALL(cudaDeviceGetMemPool, (void **pool, int), the_pool(pool))
CALL(cudaDeviceSetMemPool, (int, void *), SUCCESS)
CALL(cudaMemPoolCreate, (void **pool, const void *), the_pool(pool))
CALL(cudaMemPoolDestroy, (void *), SUCCESS)
CALL(cudaMemPoolTrimTo, (void *, size_t), SUCCESS)
CALL(cudaMemPoolSetAccess, (void *, const void *, size_t), SUCCESS)
CALL(cudaMemPoolSetAttribute, (void *, int attribute, void *value), pool_attribute(attribute, value, true))
CALL(cudaMemPoolGetAttribute, (void *, int attribute, void *value), pool_attribute(attribute, value, false))

// Arrays ---------------------------------------------------------------------------------------------------------------

struct Offsets { // cudaPos
    size_t x, y, z;
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

static Status array_end(End *end, Array *array, const size_t *offsets, const Box &box) {
    Status status = SUCCESS;
    *end = end_of(MEMORY_ARRAY, nullptr, 0, array, offsets, 0, 0, box.sides, &status);
    return status;
}

// Extents and offsets count elements where an array is, bytes where none is.
static Status copy_volume(const Copy3D &how, Stream *stream, bool wait) {
    for (Array *array : {how.from_array, how.to_array})
        if (array && !held(array))
            return INVALID_HANDLE;
    Array *any = how.from_array ? how.from_array : how.to_array;
    size_t element = any ? any->row() / any->extents[0] : 1;
    Box box{{how.extent.width * element, how.extent.height, how.extent.depth}};
    if (!box.sides[0] || !box.sides[1] || !box.sides[2])
        return SUCCESS;
    auto end = [&](End *end, Array *array, const Offsets &at, const Pitched &linear, bool device, const char *verb) {
        size_t offsets[3] = {at.x * element, at.y, at.z};
        if (array)
            return array_end(end, array, offsets, box);
        const char *pointer = linear.place + (at.z * linear.height + at.y) * linear.pitch + at.x;
        return end_at(end, pointer, device, how.direction == EITHER, linear.pitch, linear.height, box, verb);
    };
    End source, target;
    if (Status status = end(&source, how.from_array, how.from_offsets, how.from, how.direction & 2, "reads"))
        return status;
    if (Status status = end(&target, how.to_array, how.to_offsets, how.to, how.direction & 1, "writes"))
        return status;
    wait = wait && !(target.device && source.device);
    return copy_box(target, source, box.sides[0], box.sides[1], box.sides[2], stream, wait);
}
CALL(cudaMemcpy3D, (const Copy3D *how), copy_volume(*how, nullptr, true))
ONCE_MORE(cudaMemcpy3D, _ptds)
CALL(cudaMemcpy3DAsync, (const Copy3D *how, Stream *stream), copy_volume(*how, stream, false))
ONCE_MORE(cudaMemcpy3DAsync, _ptsz)

struct Plane { // of an array: the first byte of a row, the row
    Array *array;
    size_t x, y;
};
static Status copy_plane(const Plane &plane, void *linear, size_t pitch, size_t width, size_t height, int direction,
                         bool to_array, Stream *stream, bool wait) {
    Box box{{width, height, 1}};
    size_t offsets[3] = {plane.x, plane.y, 0};
    End array, other;
    if (!width || !height)
        return SUCCESS;
    if (Status status = array_end(&array, plane.array, offsets, box))
        return status;
    bool device = direction & (to_array ? 2 : 1);
    if (Status status = end_at(&other, linear, device, direction == EITHER, pitch, height, box, to_array ? "reads" : "writes"))
        return status;
    wait = wait && !other.device;
    return copy_box(to_array ? array : other, to_array ? other : array, width, height, 1, stream, wait);
}
#define PLANES(suffix, wait, alias, ...)                                                                               \
    CALL(cudaMemcpy2DToArray##suffix,                                                                                  \
         (Array * array, size_t x, size_t y, const void *from, size_t pitch, size_t width, size_t height,              \
          int direction __VA_ARGS__),                                                                                  \
         copy_plane({array, x, y}, (void *)from, pitch, width, height, direction, true, on_stream, wait))              \
    ONCE_MORE(cudaMemcpy2DToArray##suffix, alias)                                                                      \
    CALL(cudaMemcpy2DFromArray##suffix,                                                                                \
         (void *to, size_t pitch, Array *array, size_t x, size_t y, size_t width, size_t height,                       \
          int direction __VA_ARGS__),                                                                                  \
         copy_plane({array, x, y}, to, pitch, width, height, direction, false, on_stream, wait))                       \
    ONCE_MORE(cudaMemcpy2DFromArray##suffix, alias)                                                                    \
    CALL(cudaMemcpyToArray##suffix,                                                                                    \
         (Array * array, size_t x, size_t y, const void *from, size_t bytes, int direction __VA_ARGS__),               \
         copy_plane({array, x, y}, (void *)from, bytes, bytes, 1, direction, true, on_stream, wait))                   \
    ONCE_MORE(cudaMemcpyToArray##suffix, alias)                                                                        \
    CALL(cudaMemcpyFromArray##suffix,                                                                                  \
         (void *to, Array *array, size_t x, size_t y, size_t bytes, int direction __VA_ARGS__),                        \
         copy_plane({array, x, y}, to, bytes, bytes, 1, direction, false, on_stream, wait))                            \
    ONCE_MORE(cudaMemcpyFromArray##suffix, alias)
#define COMMA ,
static Stream *const on_stream = nullptr; // of calls that name no stream
PLANES(, true, _ptds)
PLANES(Async, false, _ptsz, COMMA Stream *on_stream)

struct Channels { // cudaChannelFormatDesc: bits of each, and how they are meant
    int bits[4], kind;
};

static int format_of(const Channels &how) { // CUarray_format; 0: there is none
    switch (how.kind * 100 + how.bits[0]) {
    case 8: return 8;
    case 16: return 9;
    case 32: return 10;
    case 108: return 1;
    case 116: return 2;
    case 132: return 3;
    case 216: return 16;
    case 232: return 32;
    default: return 0;
    }
}
static unsigned channels_of(const Channels &how) { return how.bits[3] ? 4 : how.bits[2] ? 3 : how.bits[1] ? 2 : 1; }
static Channels channels_in(int format, unsigned channels) {
    int kind = format < 8 ? 1 : format < 16 ? 0 : 2;
    int bits = kind == 1 ? 8 << (format - 1) : kind == 0 ? 8 << (format - 8) : format;
    Channels how{{0, 0, 0, 0}, kind};
    std::fill(how.bits, how.bits + channels, bits);
    return how;
}

static Status give_array(Array **made, const Channels &how, const Extent &extent, unsigned flags) {
    int format = format_of(how);
    return format ? make_array(made, {extent.width, extent.height, extent.depth, format, channels_of(how), flags})
                  : INVALID_VALUE;
}
CALL(cudaMallocArray, (Array * *made, const Channels *how, size_t width, size_t height, unsigned flags),
     give_array(made, *how, {width, height, 0}, flags))
CALL(cudaMalloc3DArray, (Array * *made, const Channels *how, Extent extent, unsigned flags),
     give_array(made, *how, extent, flags))
CALL(cudaFreeArray, (Array * array), array ? destroy_array(array) : SUCCESS)

static Status array_info(Channels *how, Extent *extent, unsigned *flags, Array *array) {
    if (!held(array))
        return INVALID_HANDLE;
    if (how)
        *how = channels_in(array->format, array->channels);
    if (extent)
        *extent = {array->extents[0], array->extents[1], array->extents[2]};
    if (flags)
        *flags = array->flags;
    return SUCCESS;
}
CALL(cudaArrayGetInfo, (Channels * how, Extent *extent, unsigned *flags, Array *array),
     array_info(how, extent, flags, array))
CALL(cudaGetChannelDesc, (Channels * how, Array *array), array_info(how, nullptr, nullptr, array))
API Channels cudaCreateChannelDesc(int x, int y, int z, int w, int kind) { return {{x, y, z, w}, kind}; }

// Texture and surface objects ------------------------------------------------------------------------------------------

struct RuntimeResource { // cudaResourceDesc
    int type;
    union {
        Array *array;
        struct {
            Address place;
            Channels channels;
            size_t sides[3]; // of linear memory its bytes; of rows width, height and pitch
        } linear;
        int all[32];
    } of;
    unsigned flags;
};
struct RuntimeTexture { // cudaTextureDesc
    int address[3], filter, read_mode, srgb; // read mode 0: the elements as they are
    float border[4];
    int normalized;
    unsigned anisotropy;
    int mipmap_filter;
    float bias, least, most;
    int no_trilinear, seamless;
};
struct DriverTexture { // CUDA_TEXTURE_DESC
    int address[3], filter;
    unsigned flags, anisotropy;
    int mipmap_filter;
    float bias, least, most, border[4];
    int rest[12];
};

static Status object_of(Address *object, const RuntimeResource &from, const RuntimeTexture *how) {
    Resource resource{};
    resource.type = from.type;
    if (from.type == 0) {
        resource.of.array = from.of.array;
    } else if (from.type == 2) {
        const Channels &channels = from.of.linear.channels;
        resource.of.linear = {from.of.linear.place, format_of(channels), channels_of(channels), from.of.linear.sides[0]};
    } else {
        return missing("texture objects of rows with a pitch and of mipmapped arrays");
    }
    if (!how)
        return make_object(object, &resource, nullptr);
    DriverTexture texture{};
    std::copy(how->address, how->address + 3, texture.address);
    std::copy(how->border, how->border + 4, texture.border);
    texture.filter = how->filter;
    texture.flags = unsigned(!how->read_mode) | (how->normalized ? 2u : 0u) | (how->srgb ? 16u : 0u);
    return make_object(object, &resource, &texture);
}
CALL(cudaCreateTextureObject,
     (Address * object, const RuntimeResource *resource, const RuntimeTexture *how, const void *),
     object_of(object, *resource, how))
CALL(cudaCreateSurfaceObject, (Address * object, const RuntimeResource *resource), object_of(object, *resource, nullptr))
CALL(cudaDestroyTextureObject, (Address object), forget_object(object))
CALL(cudaDestroySurfaceObject, (Address object), forget_object(object))

} // namespace programs
