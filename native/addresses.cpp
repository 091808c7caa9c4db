// For each memory space, these functions resolve the addresses of a warp's lanes, check, count and record the access,
// and move the data.
#include "addresses.hpp"

namespace engine {

namespace {

// Count a request. Return how many bytes of each lane are counted; 0 means that another memory instruction is counted
// in place of this one.
inline i64 count_request(const WarpAccess &warp_access, const Request &request) {
    Block &block = warp_access.block;
    if (warp_access.access.kind == ATOMIC)
        return count_atomic(block, warp_access.op, request, warp_access.data);
    if (!block.launch.about.checked)
        return 0;
    return block.worker.counters.count(block, request);
}
inline bool in_one_region(const WarpAccess &warp_access, const Lanes &lanes, i32 &slot) {
    const auto &regions = warp_access.block.launch.regions;
    const i64 number = lanes.addresses[0] >> SLOT_BITS;
    slot = i32(number);
    if (number <= 0 || number >= i64(regions.size()))
        return false;
    const Region &region = regions[size_t(number)];
    return lanes.within(region.base, region.base + region.size, warp_access.access.size);
}

// Count a request to global or constant memory, and record the memory that it touches (its footprint).
void count(const WarpAccess &warp_access, const Request &request, bool counted) {
    Block &block = warp_access.block;
    if (counted && warp_access.access.number[request.space] >= 0) {
        const i64 size = count_request(warp_access, request);
        if (!size || !block.launch.about.footprint)
            return;
        const i64 shift = warp_access.access.issued[request.space] > 0 ? warp_access.access.shift[request.space] : 0;
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
bool in_region(const WarpAccess &warp_access, i32 space, i32 slot, const Lanes &lanes, bool counted, Memory &memory) {
    Block &block = warp_access.block;
    const Region &region = block.launch.regions[size_t(slot)];
    const bool stores = warp_access.access.kind != LOAD;
    if (region.heap || (stores && !region.writable)) {
        block.suspect("an access to the heap, or a store to memory that is read-only", warp_access.op);
        return false;
    }
    Request request{warp_access.access, space,           slot,           warp_access.warp,
                    lanes.mask,         lanes.addresses, lanes.straight, lanes.stride};
    count(warp_access, request, counted);
    if (region.watched && space == GLOBAL && block.launch.about.checked)
        block.worker.races.note(block, warp_access.op, request, lanes.addresses[first_lane(lanes.mask)],
                                warp_access.data);
    if (stores)
        block.launch.undo.keep(block.launch, slot, -region.base, lanes.addresses, lanes.low, lanes.high,
                               warp_access.access.size);
    memory = {region.data - region.base, 0};
    return true;
}

bool global_lanes(const WarpAccess &warp_access, i32 space, const Lanes &lanes, const Move &move) {
    Memory memory;
    i32 slot;
    if (in_one_region(warp_access, lanes, slot)) {
        if (!in_region(warp_access, space, slot, lanes, true, memory))
            return false;
        move(memory, lanes);
        return true;
    }
    const Launch &launch = warp_access.block.launch;
    if (warp_access.access.kind == LOAD && space == GLOBAL &&
        lanes.within(PARAMETER_WINDOW, PARAMETER_WINDOW + launch.about.parameters_size, warp_access.access.size)) {
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
        if (!in_one_region(warp_access, part, slot)) {
            warp_access.block.suspect("an address is out of bounds or misaligned", warp_access.op);
            return false;
        }
        if (counts && first > 0) {
            Request request{warp_access.access, space, i32(first), warp_access.warp, lanes.mask, lanes.addresses};
            count(warp_access, request, true);
            counts = false;
        }
        if (!in_region(warp_access, space, slot, part, false, memory))
            return false;
        if (warp_access.access.number[space] >= 0 && launch.about.checked)
            warp_access.block.worker.counters.rows[size_t(warp_access.access.number[space] * launch.places + slot)]
                .beside++;
        move(memory, part);
    }
    return true;
}

bool shared_lanes(const WarpAccess &warp_access, const Lanes &lanes, const Move &move) {
    Block &block = warp_access.block;
    const Launch &launch = block.launch;
    const Access &access = warp_access.access;
    const bool known = access.shared_low <= access.shared_high;
    if (access.size > 16 || !lanes.within(known ? access.shared_low : 0,
                                          known ? access.shared_high : launch.about.shared_size, access.size)) {
        block.suspect("an address in shared memory is out of bounds or misaligned", warp_access.op);
        return false;
    }
    if (launch.about.checked) {
        Request request{access,           SHARED,      variable_of(warp_access, lanes.addresses[0]),
                        warp_access.warp, lanes.mask,  lanes.addresses,
                        lanes.straight,   lanes.stride};
        count_request(warp_access, request);
        block.worker.races.note(block, warp_access.op, request, lanes.addresses[first_lane(lanes.mask)],
                                warp_access.data);
    }
    move(Memory{block.shared, 0}, lanes);
    return true;
}

bool local_lanes(const WarpAccess &warp_access, const Lanes &lanes, const Move &move) {
    Block &block = warp_access.block;
    const Access &access = warp_access.access;
    const bool known = access.local_low <= access.local_high;
    if (access.kind == ATOMIC || access.skewed ||
        !lanes.within(known ? access.local_low : 0, known ? access.local_high : block.launch.about.local_bytes,
                      access.size)) {
        block.suspect("an address in local memory is out of bounds or misaligned", warp_access.op);
        return false;
    }
    if (block.launch.about.checked) {
        Request request{access, LOCAL, 0, warp_access.warp, lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
        block.worker.counters.count(block, request);
    }
    move(Memory{block.local + warp_access.warp * LANES * block.local_stride, block.local_stride}, lanes);
    return true;
}

// Resolve generic addresses. An address outside the windows of shared and local memory is in global memory.
bool generic_lanes(const WarpAccess &warp_access, const Lanes &lanes, const Move &move) {
    i32 slot;
    if (in_one_region(warp_access, lanes, slot))
        return global_lanes(warp_access, GLOBAL, lanes, move);
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
        if (!shared_lanes(warp_access, part, move))
            return false;
    }
    if (local) {
        part.part(lanes, local, LOCAL_WINDOW);
        if (!local_lanes(warp_access, part, move))
            return false;
    }
    if (const u32 rest = lanes.mask & ~shared & ~local) {
        part.part(lanes, rest, 0);
        return global_lanes(warp_access, GLOBAL, part, move);
    }
    return true;
}

} // namespace

bool by_space(const WarpAccess &warp_access, const Lanes &lanes, const Move &move) {
    switch (warp_access.access.space) {
    case GLOBAL:
    case PARAMETER: return global_lanes(warp_access, GLOBAL, lanes, move);
    case CONSTANT: return global_lanes(warp_access, CONSTANT, lanes, move);
    case SHARED: return shared_lanes(warp_access, lanes, move);
    case LOCAL: return local_lanes(warp_access, lanes, move);
    default: return generic_lanes(warp_access, lanes, move);
    }
}

} // namespace engine
