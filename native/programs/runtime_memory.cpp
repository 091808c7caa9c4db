// The runtime's front end: allocations, copies and fills, and reports of the program's errors in these calls.
#include "runtime.hpp"

#include <algorithm>
#include <cstdio>

namespace programs {

static bool only_of_device(const void *pointer) { return Address(pointer) >> SLOT_BITS >= 128; }
static bool of_device(const void *pointer) { return only_of_device(pointer) || memory_at(Address(pointer)); }

static std::string text(size_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

// Report why some bytes of device memory cannot be read or written.
static Status wrong_memory(Address address, size_t bytes, const char *verb) {
    const Memory *memory = memory_at(address);
    auto gone = freed.find(int(address >> SLOT_BITS));
    size_t offset = address & (SLOT - 1);
    std::string words = calling + std::string(" ") + verb + " " + text(bytes) + " ";
    if (memory)
        finding("copy-outside",
                words + "from byte " + std::to_string(offset) + " of an allocation of " + text(memory->bytes) + ".",
                call_stack(), memory->place);
    else if (gone != freed.end())
        finding("use-after-free", words + "of memory that was freed.", call_stack(), gone->second);
    return INVALID_VALUE;
}

// Check a pointer that must point to device memory.
Status check_device(const void *pointer, size_t bytes, const char *verb) {
    if (host_of(Address(pointer), bytes))
        return SUCCESS;
    if (of_device(pointer) || !pointer)
        return wrong_memory(Address(pointer), bytes, verb);
    finding("host-pointer",
            calling + std::string(" is given a pointer to the host's memory, and needs one to the device's."),
            call_stack());
    return INVALID_VALUE;
}

// Set `end` to the source or target of a copy: the memory at a pointer. Unless `either` is set, the direction of the
// copy demands device memory (`device`) or host memory.
Status end_at(CopyEnd *end, const void *pointer, bool device, bool either, size_t pitch, size_t rows, const Box &box,
              const char *verb) {
    if (!pointer)
        return INVALID_VALUE;
    if (box.sides[1] > 1 && pitch < box.sides[0])
        return INVALID_PITCH;
    *end =
        of_device(pointer) ? CopyEnd{Address(pointer), nullptr, pitch, rows} : CopyEnd{0, (char *)pointer, pitch, rows};
    bool pinned = !end->device && pinned_slot(pointer);
    if (!either && device ? !end->device && !pinned : !either && only_of_device(pointer)) {
        finding("copy-direction",
                calling + std::string(" ") + verb +
                    (device ? " memory of the device by its direction, and is given a pointer to the host's."
                            : " memory of the host by its direction, and is given a pointer to the device's."),
                call_stack());
        return INVALID_VALUE;
    }
    if (!end->first_byte(box.sides))
        return wrong_memory(end->device, ((box.sides[2] - 1) * rows + box.sides[1] - 1) * pitch + box.sides[0], verb);
    return SUCCESS;
}

// Copy a box. With `wait`, wait for the copy if the source or the target is host memory; page-locked and managed memory
// count as host memory.
Status copy_ends(const CopyEnd &target, const CopyEnd &source, const Box &box, Stream *stream, bool wait) {
    auto of_host = [](const CopyEnd &end) {
        const Memory *memory = memory_at(end.device);
        return !memory || memory->of_host() || !only_of_device((void *)end.device);
    };
    wait = wait && (of_host(target) || of_host(source));
    return copy_box(target, source, box.sides[0], box.sides[1], box.sides[2], stream, wait);
}

static Status copy_rows(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height,
                        int direction, Stream *stream, bool wait) {
    Box box{{width, height, 1}};
    CopyEnd target, source;
    bool either = direction == EITHER;
    if (direction < 0 || direction > EITHER)
        return INVALID_DIRECTION;
    if (!width || !height)
        return SUCCESS;
    if (Status status = end_at(&target, to, direction & 1, either, to_pitch, height, box, "writes"))
        return status;
    if (Status status = end_at(&source, from, direction & 2, either, from_pitch, height, box, "reads"))
        return status;
    return copy_ends(target, source, box, stream, wait);
}

Status copy(void *to, const void *from, size_t bytes, int direction, Stream *stream, bool wait) {
    return copy_rows(to, bytes, from, bytes, bytes, 1, direction, stream, wait);
}

CALL_PTDS(cudaMemcpy, (void *to, const void *from, size_t bytes, int direction),
          copy(to, from, bytes, direction, 0, true))
CALL_PTSZ(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, int direction, Stream *stream),
          copy(to, from, bytes, direction, stream, false))
CALL(cudaMemcpyPeer, (void *to, int, const void *from, int, size_t bytes), copy(to, from, bytes, EITHER, 0, true))
CALL(cudaMemcpyPeerAsync, (void *to, int, const void *from, int, size_t bytes, Stream *stream),
     copy(to, from, bytes, EITHER, stream, false))
CALL_PTDS(cudaMemcpy2D,
          (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int direction),
          copy_rows(to, to_pitch, from, from_pitch, width, height, direction, nullptr, true))
CALL_PTSZ(cudaMemcpy2DAsync,
          (void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width, size_t height, int direction,
           Stream *stream),
          copy_rows(to, to_pitch, from, from_pitch, width, height, direction, stream, false))

// Copy to or from a variable of the program.
Status copy_symbol(bool to_symbol, const void *symbol, size_t offset, const void *other, size_t bytes, int direction,
                   Stream *stream, bool wait) {
    Address place;
    size_t room;
    if (Status status = symbol_place(&place, &room, symbol))
        return status;
    auto at = (void *)(place + offset);
    return to_symbol ? copy(at, other, bytes, direction, stream, wait)
                     : copy((void *)other, at, bytes, direction, stream, wait);
}
CALL_PTDS(cudaMemcpyToSymbol, (const void *symbol, const void *from, size_t bytes, size_t offset, int direction),
          copy_symbol(true, symbol, offset, from, bytes, direction, nullptr, true))
CALL_PTSZ(cudaMemcpyToSymbolAsync,
          (const void *symbol, const void *from, size_t bytes, size_t offset, int direction, Stream *stream),
          copy_symbol(true, symbol, offset, from, bytes, direction, stream, false))
CALL_PTDS(cudaMemcpyFromSymbol, (void *to, const void *symbol, size_t bytes, size_t offset, int direction),
          copy_symbol(false, symbol, offset, to, bytes, direction, nullptr, true))
CALL_PTSZ(cudaMemcpyFromSymbolAsync,
          (void *to, const void *symbol, size_t bytes, size_t offset, int direction, Stream *stream),
          copy_symbol(false, symbol, offset, to, bytes, direction, stream, false))

// Fills -------------------------------------------------------------------------------------------------------------

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
// Fill layer by layer, because there may be other rows between the rows of two layers.
static Status set_layers(const Pitched &at, int value, const Extent &extent, Stream *stream) {
    for (size_t layer = 0; layer < extent.depth; layer++)
        if (Status status =
                set(at.place + layer * at.pitch * at.height, at.pitch, value, extent.width, extent.height, stream))
            return status;
    return SUCCESS;
}
CALL_PTDS(cudaMemset, (void *at, int value, size_t bytes), set(at, 0, value, bytes, 1, nullptr))
CALL_PTSZ(cudaMemsetAsync, (void *at, int value, size_t bytes, Stream *stream), set(at, 0, value, bytes, 1, stream))
CALL_PTDS(cudaMemset2D, (void *at, size_t pitch, int value, size_t width, size_t height),
          set(at, pitch, value, width, height, nullptr))
CALL_PTSZ(cudaMemset2DAsync, (void *at, size_t pitch, int value, size_t width, size_t height, Stream *stream),
          set(at, pitch, value, width, height, stream))
CALL_PTDS(cudaMemset3D, (Pitched at, int value, Extent extent), set_layers(at, value, extent, nullptr))
CALL_PTSZ(cudaMemset3DAsync, (Pitched at, int value, Extent extent, Stream *stream),
          set_layers(at, value, extent, stream))

// Allocations -------------------------------------------------------------------------------------------------------

static Status allocate_pointer(void **pointer, size_t bytes, Kind kind) {
    if (!pointer || (!bytes && kind == MANAGED))
        return INVALID_VALUE;
    *pointer = nullptr;
    return bytes ? allocate((Address *)pointer, bytes, kind) : SUCCESS;
}

static Status allocate_rows(void **pointer, size_t *pitch, size_t width, size_t rows) {
    if (!pointer || !pitch)
        return INVALID_VALUE;
    if (width > SLOT || rows > SLOT)
        return OUT_OF_MEMORY;
    *pitch = (width + 511) / 512 * 512;
    return rows && *pitch > SLOT / rows ? OUT_OF_MEMORY : allocate_pointer(pointer, *pitch * rows, DEVICE);
}

static Status allocate_layers(Pitched *made, const Extent &extent) {
    made->width = extent.width, made->height = extent.height;
    return allocate_rows((void **)&made->place, &made->pitch, extent.width, extent.height * extent.depth);
}

// Find the allocation that the program frees. The pointer must be its first address.
static Status slot_to_free(int *slot, const void *pointer, bool of_host) {
    const Memory *memory = memory_at(Address(pointer));
    auto gone = freed.find(*slot = int(Address(pointer) >> SLOT_BITS));
    bool begins = !(Address(pointer) & (SLOT - 1));
    if (!memory && gone != freed.end() && begins)
        finding("double-free", calling + std::string(" frees memory that was freed before."), call_stack(),
                gone->second);
    bool fits =
        memory && begins && (of_host ? memory->kind == PINNED : memory->kind == DEVICE || memory->kind == MANAGED);
    return fits ? SUCCESS : INVALID_VALUE;
}

static Status free_pointer(const void *pointer, bool of_host) {
    int slot;
    if (!pointer)
        return SUCCESS;
    if (Status status = slot_to_free(&slot, pointer, of_host))
        return status;
    if (memories[slot].of_graph)
        return SUCCESS;
    return run_when_idle([=] { finish_all_work(), release(slot); });
}

Status free_in_order(const void *pointer, Stream *handle) {
    int slot;
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    if (Status status = slot_to_free(&slot, pointer, false))
        return status;
    Status status = queue(stream, FREE, [=](double *) -> Status {
        if (!memories[slot].of_graph)
            release(slot);
        return SUCCESS;
    });
    // Free the memory before the work of other streams that nothing orders before: a GPU may do so, too.
    auto waits = [&](auto &other) { return other != stream && !other->queue.empty(); };
    const auto &streams = stream->context->streams;
    if (!stream->captured && std::any_of(streams.begin(), streams.end(), waits))
        wait_for(stream.get(), sequence);
    return status;
}

// Allocate memory in the order of a stream. While a graph is captured, the memory belongs to the graph: it is allocated
// now and is not freed when the graph runs.
Status allocate_in_order(void **pointer, size_t bytes, Stream *handle) {
    auto stream = stream_of(handle);
    Status status = stream ? allocate_pointer(pointer, bytes, DEVICE) : INVALID_HANDLE;
    if (!status && bytes)
        memory_at(Address(*pointer))->of_graph = stream->captured != nullptr;
    return status;
}

CALL(cudaMalloc, (void **pointer, size_t bytes), allocate_pointer(pointer, bytes, DEVICE))
CALL(cudaMallocManaged, (void **pointer, size_t bytes, unsigned), allocate_pointer(pointer, bytes, MANAGED))
CALL(cudaMallocHost, (void **pointer, size_t bytes), allocate_pointer(pointer, bytes, PINNED))
CALL(cudaHostAlloc, (void **pointer, size_t bytes, unsigned), allocate_pointer(pointer, bytes, PINNED))
CALL(cudaMallocPitch, (void **pointer, size_t *pitch, size_t width, size_t rows),
     allocate_rows(pointer, pitch, width, rows))
CALL(cudaMalloc3D, (Pitched * made, Extent extent), allocate_layers(made, extent))
CALL_PTSZ(cudaMallocAsync, (void **pointer, size_t bytes, Stream *stream), allocate_in_order(pointer, bytes, stream))
CALL_PTSZ(cudaMallocFromPoolAsync, (void **pointer, size_t bytes, void *, Stream *stream),
          allocate_in_order(pointer, bytes, stream))
CALL(cudaFree, (void *pointer), free_pointer(pointer, false))
CALL(cudaFreeHost, (void *pointer), free_pointer(pointer, true))
CALL_PTSZ(cudaFreeAsync, (void *pointer, Stream *stream), free_in_order(pointer, stream))

static Status page_lock(char *host, size_t bytes) {
    if (!host || !bytes)
        return INVALID_VALUE;
    if (pinned_slot(host) || pinned_slot(host + bytes - 1))
        return ALREADY_REGISTERED;
    return add_registered(free_slot(), host, bytes, call_stack()) ? SUCCESS : OUT_OF_MEMORY;
}
static Status unlock(const void *host) {
    int slot = pinned_slot(host);
    if (!slot || memories[slot].kind != REGISTERED || memories[slot].host != host)
        return NOT_REGISTERED;
    return run_when_idle([=] { finish_all_work(), release(slot); });
}
static Status device_pointer(void **pointer, const char *host) {
    int slot = pinned_slot(host);
    if (!slot)
        return INVALID_VALUE;
    bool same = memories[slot].kind == PINNED;
    *pointer = same ? (void *)host : (void *)((Address(slot) << SLOT_BITS) + Address(host - memories[slot].host));
    return SUCCESS;
}
CALL(cudaHostRegister, (void *host, size_t bytes, unsigned), page_lock((char *)host, bytes))
CALL(cudaHostUnregister, (void *host), unlock(host))
CALL(cudaHostGetDevicePointer, (void **pointer, void *host, unsigned), device_pointer(pointer, (char *)host))
CALL(cudaHostGetFlags, (unsigned *flags, void *host), pinned_slot(host) ? (*flags = 2, SUCCESS) : INVALID_VALUE)

struct PointerAttributes {
    int type, device; // type: 0: host memory, 1: page-locked host memory, 2: device memory, 3: managed memory
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
    *to = {memory->of_host() ? 1 : only_of_device(pointer) ? 2 : 3, memory->context->device, pointer, pointer, {}};
    if (slot)
        to->of_device = (void *)((Address(slot) << SLOT_BITS) + Address((char *)pointer - memory->host));
    if (to->type == 2)
        to->of_host = nullptr;
    return SUCCESS;
}
CALL(cudaPointerGetAttributes, (PointerAttributes * to, const void *pointer),
     to ? pointer_attributes(to, pointer) : INVALID_VALUE)

static Status free_memory(size_t *left, size_t *all) {
    *all = cards[size_t(context()->device)].memory;
    *left = *all - used(context()->device);
    return SUCCESS;
}
CALL(cudaMemGetInfo, (size_t *left, size_t *all), free_memory(left, all))
// Advice has no effect, because host and device share one memory here.
CALL(cudaMemAdvise, (const void *at, size_t bytes), check_device(at, bytes, "advises"))
CALL(cudaMemAdvise_v2, (const void *at, size_t bytes), check_device(at, bytes, "advises"))
CALL_PTSZ(cudaMemPrefetchAsync, (const void *at, size_t bytes), check_device(at, bytes, "moves"))
CALL_PTSZ(cudaMemPrefetchAsync_v2, (const void *at, size_t bytes), check_device(at, bytes, "moves"))

// Memory pools: all pools are the same, and they allocate memory at once.
static std::map<int, uint64_t> pool_attributes;
static Status pool_attribute(int attribute, void *value, bool set) {
    if (attribute < 1 || attribute > 8)
        return INVALID_VALUE;
    // cudaMemPoolAttr: attributes 1 to 3 are switches of 4 bytes, the others are sizes of 8 bytes
    size_t bytes = attribute < 4 ? 4 : 8;
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
CALL(cudaMemPoolCreate, (void **pool, const void *), the_pool(pool))
CALL(cudaMemPoolSetAttribute, (void *, int attribute, void *value), pool_attribute(attribute, value, true))
CALL(cudaMemPoolGetAttribute, (void *, int attribute, void *value), pool_attribute(attribute, value, false))

} // namespace programs
