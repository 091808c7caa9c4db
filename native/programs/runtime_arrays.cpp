// The runtime's front end: copies of boxes and of CUDA arrays; texture and surface objects.
#include "runtime.hpp"

#include <algorithm>

namespace programs {

// Arrays ------------------------------------------------------------------------------------------------------------

static Status array_end(CopyEnd *end, Array *array, const size_t *offsets, const Box &box) {
    Status status = SUCCESS;
    *end = end_of(MEMORY_ARRAY, nullptr, 0, array, offsets, 0, 0, box.sides, &status);
    return status;
}

// Copy a box. Extents and offsets count elements if the source or the target is an array; otherwise they count bytes.
Status copy_volume(const Copy3D &how, Stream *stream, bool wait) {
    for (Array *array : {how.from_array, how.to_array})
        if (array && !find_handle(array))
            return INVALID_HANDLE;
    Array *any = how.from_array ? how.from_array : how.to_array;
    size_t element = any ? any->row() / any->extents[0] : 1;
    Box box{{how.extent.width * element, how.extent.height, how.extent.depth}};
    if (!box.sides[0] || !box.sides[1] || !box.sides[2])
        return SUCCESS;
    auto end = [&](CopyEnd *end, Array *array, const Offsets &at, const Pitched &linear, bool device,
                   const char *verb) {
        size_t offsets[3] = {at.x * element, at.y, at.z};
        if (array)
            return array_end(end, array, offsets, box);
        const char *pointer = linear.place + (at.z * linear.height + at.y) * linear.pitch + at.x;
        return end_at(end, pointer, device, how.direction == EITHER, linear.pitch, linear.height, box, verb);
    };
    CopyEnd source, target;
    if (Status status = end(&source, how.from_array, how.from_offsets, how.from, how.direction & 2, "reads"))
        return status;
    if (Status status = end(&target, how.to_array, how.to_offsets, how.to, how.direction & 1, "writes"))
        return status;
    return copy_ends(target, source, box, stream, wait);
}
CALL_PTDS(cudaMemcpy3D, (const Copy3D *how), copy_volume(*how, nullptr, true))
CALL_PTSZ(cudaMemcpy3DAsync, (const Copy3D *how, Stream *stream), copy_volume(*how, stream, false))

struct Plane { // a position in a 2D array: x is the byte in the row, y is the row
    Array *array;
    size_t x, y;
};
static Status copy_plane(const Plane &plane, void *linear, size_t pitch, size_t width, size_t height, int direction,
                         bool to_array, Stream *stream, bool wait) {
    Box box{{width, height, 1}};
    size_t offsets[3] = {plane.x, plane.y, 0};
    CopyEnd array, other;
    if (!width || !height)
        return SUCCESS;
    if (Status status = array_end(&array, plane.array, offsets, box))
        return status;
    bool device = direction & (to_array ? 2 : 1);
    if (Status status =
            end_at(&other, linear, device, direction == EITHER, pitch, height, box, to_array ? "reads" : "writes"))
        return status;
    return copy_ends(to_array ? array : other, to_array ? other : array, box, stream, wait);
}
// Copy bytes from or to an array, beginning at `plane`, one row after the other.
static Status copy_run(const Plane &plane, void *linear, size_t bytes, int direction, bool to_array, Stream *stream,
                       bool wait) {
    if (!find_handle(plane.array))
        return INVALID_HANDLE;
    auto place = (void *)(plane.array->place + plane.y * plane.array->row() + plane.x);
    return to_array ? copy(place, linear, bytes, direction, stream, wait)
                    : copy(linear, place, bytes, direction, stream, wait);
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
         copy_run({array, x, y}, (void *)from, bytes, direction, true, on_stream, wait))                               \
    ONCE_MORE(cudaMemcpyToArray##suffix, alias)                                                                        \
    CALL(cudaMemcpyFromArray##suffix,                                                                                  \
         (void *to, Array *array, size_t x, size_t y, size_t bytes, int direction __VA_ARGS__),                        \
         copy_run({array, x, y}, to, bytes, direction, false, on_stream, wait))                                        \
    ONCE_MORE(cudaMemcpyFromArray##suffix, alias)
#define COMMA ,
static Stream *const on_stream = nullptr; // the stream for calls that have no stream parameter
PLANES(, true, _ptds)
PLANES(Async, false, _ptsz, COMMA Stream *on_stream)

struct Channels { // cudaChannelFormatDesc: the bits of each channel, and the kind of its type
    int bits[4], kind;
};

static int format_of(const Channels &how) { // returns a CUarray_format; 0: there is no such format
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

static Status allocate_array(Array **made, const Channels &how, const Extent &extent, unsigned flags) {
    int format = format_of(how);
    return format ? make_array(made, {extent.width, extent.height, extent.depth, format, channels_of(how), flags})
                  : INVALID_VALUE;
}
CALL(cudaMallocArray, (Array * *made, const Channels *how, size_t width, size_t height, unsigned flags),
     allocate_array(made, *how, {width, height, 0}, flags))
CALL(cudaMalloc3DArray, (Array * *made, const Channels *how, Extent extent, unsigned flags),
     allocate_array(made, *how, extent, flags))
CALL(cudaFreeArray, (Array * array), array ? destroy_array(array) : SUCCESS)

static Status array_info(Channels *how, Extent *extent, unsigned *flags, Array *array) {
    if (!find_handle(array))
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

// Texture and surface objects ---------------------------------------------------------------------------------------

struct RuntimeResource { // cudaResourceDesc
    int type;
    union {
        Array *array;
        struct {
            Address place;
            Channels channels;
            size_t sides[3]; // for 1D linear memory: its bytes; for 2D linear memory: width, height and pitch
        } linear;
        int all[32];
    } of;
    unsigned flags;
};
struct RuntimeTexture {                      // cudaTextureDesc
    int address[3], filter, read_mode, srgb; // read mode 0: elements are not converted to floats
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

const size_t PITCH_ALIGNMENT = 32; // cudaDeviceProp::texturePitchAlignment

static Status object_of(Address *object, const RuntimeResource &from, const RuntimeTexture *how) {
    Resource resource{};
    size_t sides[3] = {0, 0, 0};
    resource.type = from.type;
    if (from.type == 0) {
        resource.of.array = from.of.array;
    } else {
        const Channels &channels = from.of.linear.channels;
        unsigned count = channels_of(channels);
        auto [width, height, pitch] = from.of.linear.sides;
        bool rows = from.type == 3;
        if (from.type == 1)
            return missing("cudaCreateTextureObject of a mipmapped array");
        size_t texel = count * unsigned(channels.bits[0]) / 8;
        if (rows && (!texel || !width || !height || pitch < width * texel || pitch % PITCH_ALIGNMENT))
            return INVALID_VALUE;
        sides[0] = rows ? width : 0, sides[1] = rows ? height : 0;
        resource.type = 2;
        resource.of.linear = {from.of.linear.place, format_of(channels), count, rows ? height * pitch : width};
    }
    if (!how)
        return make_object(object, &resource, nullptr, sides);
    DriverTexture texture{};
    std::copy(how->address, how->address + 3, texture.address);
    std::copy(how->border, how->border + 4, texture.border);
    texture.filter = how->filter;
    texture.flags = unsigned(!how->read_mode) | (how->normalized ? 2u : 0u) | (how->srgb ? 16u : 0u);
    return make_object(object, &resource, &texture, sides);
}
CALL(cudaCreateTextureObject,
     (Address * object, const RuntimeResource *resource, const RuntimeTexture *how, const void *),
     object_of(object, *resource, how))
CALL(cudaCreateSurfaceObject, (Address * object, const RuntimeResource *resource),
     object_of(object, *resource, nullptr))
CALL(cudaDestroyTextureObject, (Address object), destroy_object(object))
CALL(cudaDestroySurfaceObject, (Address object), destroy_object(object))

} // namespace programs
