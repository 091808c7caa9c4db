// Device memory and page-locked host memory, in slots of the simulator's address space; copies and fills.
#include "core.hpp"

#include <algorithm>
#include <cstring>

namespace programs {

// a freed slot is reused only after this many new slots, so that use after free is detected
const int FRESH_SLOTS = 4096;

std::map<int, Memory> memories;
std::set<int> reserved;
int first_slot = 1, next_slot = 1;
bool has_objects;
std::set<int> page_locked;

static std::map<int, size_t> bytes_by_device; // for each device, the bytes of its memory that are in use
static std::set<int> free_slots;              // free slots that were used before

size_t used(int device) { return bytes_by_device[device]; }

// Return the counter to which the memory's bytes belong; host memory is not counted
static size_t &used_bytes(const Memory &memory) {
    static size_t nowhere;
    return memory.kind == DEVICE || memory.kind == MANAGED ? bytes_by_device[memory.context->device] : nowhere;
}

int free_slot() {
    if (next_slot < first_slot + FRESH_SLOTS || free_slots.empty())
        return next_slot++;
    return free_slots.extract(free_slots.begin()).value();
}

void add_memory(int slot, const Memory &memory) {
    memories[slot] = memory;
    used_bytes(memory) += memory.bytes;
    if (memory.of_host())
        page_locked.insert(slot);
}

Status allocate(Address *address, size_t bytes, Kind kind) {
    int device = context()->device;
    if (!address || !bytes)
        return INVALID_VALUE;
    if (bytes > SLOT / 2 || (kind != PINNED && used(device) + bytes > cards[device].memory))
        return OUT_OF_MEMORY;
    int slot = kind == DEVICE ? free_slot() : host_slot();
    CallStack place = call_stack();
    char *host = slot ? map_memory(slot, bytes, kind, place) : nullptr;
    if (!host)
        return OUT_OF_MEMORY;
    add_memory(slot, Memory{host, bytes, context(), kind, place});
    *address = Address(slot) << SLOT_BITS;
    return SUCCESS;
}

void release(int slot) {
    auto entry = memories.find(slot);
    if (entry == memories.end())
        return;
    if (has_objects && callable())
        callbacks.forget(slot);
    unmap_memory(slot, entry->second);
    used_bytes(entry->second) -= entry->second.bytes;
    page_locked.erase(slot);
    memories.erase(entry);
    if (slot >= first_slot)
        free_slots.insert(slot);
}

Memory *memory_at(Address address) {
    auto entry = memories.find(int(address >> SLOT_BITS));
    return entry == memories.end() ? nullptr : &entry->second;
}

char *host_of(Address address, size_t bytes) {
    const Memory *memory = memory_at(address);
    size_t offset = address & (SLOT - 1);
    if (!memory || offset > memory->bytes || bytes > memory->bytes - offset)
        return nullptr;
    return memory->host + offset;
}

int pinned_slot(const void *host) {
    if (const Memory *same = host_of(Address(host), 1) ? memory_at(Address(host)) : nullptr; same && same->of_host())
        return int(Address(host) >> SLOT_BITS);
    for (int slot : page_locked)
        if (memories[slot].host <= host && host < memories[slot].host + memories[slot].bytes)
            return slot;
    return 0;
}

// Copies ------------------------------------------------------------------------------------------------------------

static double copy_time(const Stream &stream, size_t bytes) {
    return 1000 + bytes / cards[stream.context->device].bytes_per_ns;
}

char *CopyEnd::first_byte(const size_t *box) const {
    return device ? host_of(device, ((box[2] - 1) * rows + box[1] - 1) * pitch + box[0]) : host;
}

static void move_box(char *to, size_t to_pitch, size_t to_rows, const char *from, const CopyEnd &source,
                     const size_t *box) {
    for (size_t z = 0; z < box[2]; z++)
        for (size_t y = 0; y < box[1]; y++)
            memmove(to + (z * to_rows + y) * to_pitch, from + (z * source.rows + y) * source.pitch, box[0]);
}

// Queue the copy of a box of bytes, rows and layers. If the source is ordinary host memory, it is read now. If the
// target is ordinary host memory, it is written before this function returns.
Status copy_box(CopyEnd to, CopyEnd from, size_t width, size_t height, size_t layers, Stream *handle, bool wait) {
    struct Box {
        size_t sides[3];
    } box{{width, height, layers}};
    if (!width || !height || !layers)
        return SUCCESS;
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    if (!to.first_byte(box.sides) || !from.first_byte(box.sides))
        return INVALID_VALUE;
    std::shared_ptr<std::vector<char>> copied;
    bool at_once = wait && depth == 1;
    if (!from.device && !at_once && !stream->captured && !pinned_slot(from.host)) {
        copied = std::make_shared<std::vector<char>>(width * height * layers);
        move_box(copied->data(), width, height, from.host, from, box.sides);
        from = CopyEnd{0, copied->data(), width, height};
    }
    wait = wait || (!to.device && !pinned_slot(to.host) && !stream->captured);
    const Memory *written = memory_at(to.device);
    bool guarded = written && written->kind == PINNED && !wait && !stream->captured && height * layers == 1;
    double takes = copy_time(*stream, width * height * layers);
    Status status = queue(stream, COPY, [=](double *time) -> Status {
        (void)copied;
        char *target = to.first_byte(box.sides), *source = from.first_byte(box.sides);
        if (guarded)
            copy_done(to.device, width);
        if (!target || !source)
            return ILLEGAL_ADDRESS; // this happens if a graph copies memory that was freed after the graph was made
        move_box(target, to.pitch, to.rows, source, from, box.sides);
        *time = takes;
        return SUCCESS;
    });
    if (guarded)
        copy_queued(to.device, width, call_stack());
    return wait ? wait_for(stream.get(), sequence) : status;
}

Status fill(Address at, size_t pitch, const void *pattern, size_t width, size_t count, size_t rows, Stream *handle) {
    if (!count || !rows)
        return SUCCESS;
    auto stream = stream_of(handle);
    if (!stream)
        return INVALID_HANDLE;
    size_t reach;
    if (__builtin_mul_overflow(width, count, &reach) || __builtin_add_overflow(reach, (rows - 1) * pitch, &reach))
        return INVALID_VALUE;
    if (!host_of(at, reach) || at % width)
        return INVALID_VALUE;
    std::string bytes((const char *)pattern, width);
    double takes = copy_time(*stream, width * count * rows);
    return queue(stream, FILL, [=](double *time) -> Status {
        char *to = host_of(at, reach);
        if (!to)
            return ILLEGAL_ADDRESS;
        for (size_t row = 0; row < rows; row++, to += pitch)
            if (width == 1)
                memset(to, bytes[0], count);
            else
                for (size_t i = 0; i < count; i++)
                    memcpy(to + i * width, bytes.data(), width);
        *time = takes;
        return SUCCESS;
    });
}

} // namespace programs
