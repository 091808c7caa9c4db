// For each memory space, these functions resolve the addresses of a warp's lanes, check, count and record the access,
// and move the data.
#include "addresses.hpp"

namespace engine {

namespace {

// Count a request. Return how many bytes of each lane are counted; 0 means that another memory instruction is counted
// in place of this one.
inline i64 price(const Asked &asked, const Request &request) {
    Block &block = asked.block;
    if (asked.access.kind == ATOMIC)
        return count_atomic(block, asked.op, request, asked.data);
    if (!block.launch.about.checked)
        return 0;
    return block.worker.counters.count(block, request);
}
inline bool in_one_region(const Asked &asked, const Lanes &lanes, i32 &slot) {
    const auto &regions = asked.block.launch.regions;
    const i64 number = lanes.addresses[0] >> SLOT_BITS;
    slot = i32(number);
    if (number <= 0 || number >= i64(regions.size()))
        return false;
    const Region &region = regions[size_t(number)];
    return lanes.within(region.base, region.base + region.size, asked.access.size);
}

// Count a request to global or constant memory, and record the memory that it touches (its footprint).
void count(const Asked &asked, const Request &request, bool counted) {
    Block &block = asked.block;
    if (counted && asked.access.number[request.space] >= 0) {
        const i64 size = price(asked, request);
        if (!size || !block.launch.about.footprint)
            return;
        const i64 shift = asked.access.issued[request.space] > 0 ? asked.access.shift[request.space] : 0;
        if (!shift) {
            block.worker.footprints.note(block, request, size);
            return;
        }
        i64 shifted[LANES];
        Request shifted_request{request.access, request.space, request.region,   request.warp,
                                request.mask,   shifted,       request.straight, request.stride};
        for (int lane = 0; lane < LANES; lane++)
            shifted[lane] = request.addresses[lane] + shift;
        block.worker.footprints.note(block, shifted_request, size);
    }
}

// Check, count and record the access of lanes whose addresses are all in one array of global or constant memory. Return
// false if the launch may have a hazard (a suspicion).
bool in_region(const Asked &asked, i32 space, i32 slot, const Lanes &lanes, bool counted, Memory &memory) {
    Block &block = asked.block;
    const Region &region = block.launch.regions[size_t(slot)];
    const bool stores = asked.access.kind != LOAD;
    if (region.heap || (stores && !region.writable)) {
        block.suspect("an access to the heap, or a store to memory that is read-only", asked.op);
        return false;
    }
    Request request{asked.access, space, slot, asked.warp, lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
    count(asked, request, counted);
    if (region.watched && space == GLOBAL && block.launch.about.checked)
        block.worker.races.note(block, asked.op, request, asked.data);
    if (stores)
        block.launch.undo.keep(block.launch, slot, -region.base, lanes.addresses, lanes.low, lanes.high,
                               asked.access.size);
    memory = {region.data - region.base, 0};
    return true;
}

bool global_lanes(const Asked &asked, i32 space, const Lanes &lanes, const Move &move) {
    Memory memory;
    i32 slot;
    if (in_one_region(asked, lanes, slot)) {
        if (!in_region(asked, space, slot, lanes, true, memory))
            return false;
        move(memory, lanes);
        return true;
    }
    const Launch &launch = asked.block.launch;
    if (asked.access.kind == LOAD && space == GLOBAL &&
        lanes.within(PARAMETER_WINDOW, PARAMETER_WINDOW + launch.about.parameters_size, asked.access.size)) {
        // These addresses are in the kernel's parameters. Accesses to parameters are not counted.
        move(Memory{const_cast<u8 *>(launch.parameters.data()) - PARAMETER_WINDOW, 0}, lanes);
        return true;
    }
    // If the lanes access several arrays, the hardware still makes one request. It is counted for the first of these
    // arrays.
    i64 first = INT64_MAX;
    for (u32 rest = lanes.mask; rest; rest &= rest - 1)
        first = std::min(first, lanes.addresses[first_lane(rest)] >> SLOT_BITS);
    bool counts = true;
    for (u32 left = lanes.mask; left;) {
        const i64 wanted = lanes.addresses[first_lane(left)] >> SLOT_BITS;
        Lanes part;
        u32 chosen = 0;
        for (u32 rest = left; rest; rest &= rest - 1)
            if (lanes.addresses[first_lane(rest)] >> SLOT_BITS == wanted)
                chosen |= rest & -rest;
        left &= ~chosen;
        part.part(lanes, chosen, 0);
        if (!in_one_region(asked, part, slot)) {
            asked.block.suspect("an address is out of bounds or misaligned", asked.op);
            return false;
        }
        if (counts && first > 0) {
            Request request{asked.access, space, i32(first), asked.warp, lanes.mask, lanes.addresses};
            count(asked, request, true);
            counts = false;
        }
        if (!in_region(asked, space, slot, part, false, memory))
            return false;
        if (asked.access.number[space] >= 0 && launch.about.checked)
            asked.block.worker.counters.rows[size_t(asked.access.number[space] * launch.places + slot)].beside++;
        move(memory, part);
    }
    return true;
}

bool shared_lanes(const Asked &asked, const Lanes &lanes, const Move &move) {
    Block &block = asked.block;
    const Launch &launch = block.launch;
    const Access &access = asked.access;
    const bool known = access.shared_low <= access.shared_high;
    if (access.size > 16 || !lanes.within(known ? access.shared_low : 0,
                                          known ? access.shared_high : launch.about.shared_size, access.size)) {
        block.suspect("an address in shared memory is out of bounds or misaligned", asked.op);
        return false;
    }
    if (launch.about.checked) {
        Request request{access,         SHARED,      variable_of(asked, lanes.addresses[0]),
                        asked.warp,     lanes.mask,  lanes.addresses,
                        lanes.straight, lanes.stride};
        price(asked, request);
        block.worker.races.note(block, asked.op, request, asked.data);
    }
    move(Memory{block.shared, 0}, lanes);
    return true;
}

bool local_lanes(const Asked &asked, const Lanes &lanes, const Move &move) {
    Block &block = asked.block;
    const Access &access = asked.access;
    const bool known = access.local_low <= access.local_high;
    if (access.kind == ATOMIC || access.skewed ||
        !lanes.within(known ? access.local_low : 0, known ? access.local_high : block.launch.about.local_bytes,
                      access.size)) {
        block.suspect("an address in local memory is out of bounds or misaligned", asked.op);
        return false;
    }
    if (block.launch.about.checked) {
        Request request{access, LOCAL, 0, asked.warp, lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
        block.worker.counters.count(block, request);
    }
    move(Memory{block.local + asked.warp * LANES * block.local_stride, block.local_stride}, lanes);
    return true;
}

// Resolve generic addresses. An address outside the windows of shared and local memory is in global memory.
bool generic_lanes(const Asked &asked, const Lanes &lanes, const Move &move) {
    i32 slot;
    if (in_one_region(asked, lanes, slot))
        return global_lanes(asked, GLOBAL, lanes, move);
    u32 shared = 0, local = 0;
    for (u32 rest = lanes.mask; rest; rest &= rest - 1) {
        const i64 address = lanes.addresses[first_lane(rest)];
        if (address >= SHARED_WINDOW - WINDOW / 2 && address < SHARED_WINDOW + WINDOW)
            shared |= rest & -rest;
        else if (address >= LOCAL_WINDOW - WINDOW / 2 && address < LOCAL_WINDOW + WINDOW)
            local |= rest & -rest;
    }
    Lanes part;
    if (shared) {
        part.part(lanes, shared, SHARED_WINDOW);
        if (!shared_lanes(asked, part, move))
            return false;
    }
    if (local) {
        part.part(lanes, local, LOCAL_WINDOW);
        if (!local_lanes(asked, part, move))
            return false;
    }
    if (const u32 rest = lanes.mask & ~shared & ~local) {
        part.part(lanes, rest, 0);
        return global_lanes(asked, GLOBAL, part, move);
    }
    return true;
}

} // namespace

bool by_space(const Asked &asked, const Lanes &lanes, const Move &move) {
    switch (asked.access.space) {
    case GLOBAL:
    case PARAMETER: return global_lanes(asked, GLOBAL, lanes, move);
    case CONSTANT: return global_lanes(asked, CONSTANT, lanes, move);
    case SHARED: return shared_lanes(asked, lanes, move);
    case LOCAL: return local_lanes(asked, lanes, move);
    default: return generic_lanes(asked, lanes, move);
    }
}

} // namespace engine
