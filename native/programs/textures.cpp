// CUDA arrays, and texture and surface objects.
#include "core.hpp"

#include <algorithm>
#include <cstdio>

namespace programs {

static Address next_handle = Address(1) << 35;

static int format_bytes(int format) { // format: a CUarray_format
    switch (format) {
    case 1:
    case 8: return 1;
    case 2:
    case 9:
    case 16: return 2;
    default: return 4;
    }
}

size_t Array::row() const { return extents[0] * channels * format_bytes(format); }

size_t Array::bytes() const { return row() * std::max<size_t>(1, extents[1]) * std::max<size_t>(1, extents[2]); }

Status make_array(Array **made, const ArrayDescriptor &how) {
    if (!how.width || (how.channels != 1 && how.channels != 2 && how.channels != 4))
        return INVALID_VALUE;
    std::unique_ptr<Array> array(new Array{0, {how.width, how.height, how.depth}, how.format, how.channels, how.flags});
    if (Status status = allocate(&array->place, array->bytes(), DEVICE))
        return status;
    *made = add_handle(array.release());
    return SUCCESS;
}

Status destroy_array(Array *handle) {
    auto array = find_handle(handle);
    if (!array)
        return INVALID_HANDLE;
    live<Array>.erase(handle);
    return run_when_idle([slot = int(array->place >> SLOT_BITS)] { finish_all_work(), release(slot); });
}

CopyEnd end_of(int type, const void *host, Address device, Array *handle, const size_t *from, size_t pitch, size_t rows,
               const size_t *box, Status *status) {
    if (type == MEMORY_ARRAY) {
        auto array = find_handle(handle);
        if (!array)
            return *status = INVALID_HANDLE, CopyEnd{};
        size_t sides[3] = {array->row(), std::max<size_t>(1, array->extents[1]),
                           std::max<size_t>(1, array->extents[2])};
        for (int axis = 0; axis < 3; axis++)
            if (box[axis] > sides[axis] || from[axis] > sides[axis] - box[axis])
                *status = INVALID_VALUE;
        device = array->place, pitch = sides[0], rows = sides[1];
    } else if (type == MEMORY_HOST) {
        device = 0;
    } else if (type != MEMORY_DEVICE && type != MEMORY_UNIFIED) {
        *status = INVALID_VALUE;
    }
    if (box[1] > 1 && pitch < from[0] + box[0])
        *status = INVALID_VALUE;
    if (box[2] > 1 && rows < from[1] + box[1])
        *status = INVALID_VALUE;
    size_t start = (from[2] * rows + from[1]) * pitch + from[0];
    return CopyEnd{device ? device + start : 0, device ? nullptr : (char *)host + start, pitch, rows};
}

Status make_object(Address *handle, const Resource *resource, const void *how, const size_t *sides) {
    if (resource->type != 0 && resource->type != 2) {
        fprintf(stderr, "the simulated driver has textures of CUDA arrays and linear memory only\n");
        return NOT_SUPPORTED;
    }
    auto array = resource->type == 0 ? find_handle(resource->of.array) : nullptr;
    if (resource->type == 0 && !array)
        return INVALID_HANDLE;
    Address place = array ? array->place : resource->of.linear.place;
    size_t bytes = array ? array->bytes() : resource->of.linear.bytes;
    size_t room =
        sides && sides[1] // unused bytes after the last row, which need not be allocated
            ? bytes / sides[1] - sides[0] * resource->of.linear.channels * format_bytes(resource->of.linear.format)
            : 0;
    char *host = host_of(place, bytes - room);
    if (!host)
        return INVALID_VALUE;
    // A CUDA array passes its format and channels in the fields of linear memory.
    Resource described = *resource;
    if (array)
        described.of.linear = {place, array->format, array->channels, bytes};
    const size_t no_extents[3] = {0, 0, 0}; // no extents are given: the pitch follows from the number of bytes
    *handle = next_handle += 16;
    has_objects = true;
    return callbacks.texture(*handle, &described, how, host, place, bytes,
                             array   ? array->extents
                             : sides ? sides
                                     : no_extents,
                             array ? array->flags : 0);
}

Status destroy_object(Address handle) { return callbacks.texture(handle, 0, 0, 0, 0, 0, 0, 0); }

} // namespace programs
