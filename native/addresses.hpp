// Where the lanes of a warp go: their addresses are resolved, checked, counted and noted by memory space, and what
// moves the data is called for the lanes of each.
#pragma once

#include "launch.hpp"

#include <algorithm>

namespace engine {

// The map of the address space is that of cudabench/simulator/memory.py.
constexpr i64 PARAMETER_WINDOW = i64(1) << 36, SHARED_WINDOW = i64(1) << 37, LOCAL_WINDOW = i64(1) << 38;
constexpr i64 WINDOW = i64(1) << 32, WIDEST = 32; // bytes; the latter of a lane
constexpr i32 SHORT_ADDRESS = 1;                  // a flag: an address of 32 bits

// The addresses of a warp's active lanes; the inactive ones have that of the first active one.
struct Lanes {
    i64 addresses[LANES];
    u32 mask;
    bool straight = false; // a full warp of one stride
    i64 stride = 0;

    template <class A> void fill(const A *base, i64 offset, u32 active) {
        mask = active;
        for (int lane = 0; lane < LANES; lane++)
            addresses[lane] = i64(u64(i64(base[lane])) + u64(offset)); // any bits: sums wrap
        settle();
    }
    // Take some lanes of others.
    void part(const Lanes &all, u32 active, i64 window) {
        mask = active;
        for (int lane = 0; lane < LANES; lane++)
            addresses[lane] = i64(u64(all.addresses[lane]) - u64(window));
        settle();
    }
    bool within(i64 low, i64 high, i64 size) const {
        const u64 limit = u64(high - size - low);
        u64 bits = 0, bad = 0;
        if (straight) {
            const u64 first = u64(addresses[0]) - u64(low), last = u64(addresses[LANES - 1]) - u64(low);
            bits = u64(addresses[0] | stride);
            bad = first | (limit - first) | last | (limit - last);
        } else
            for (int lane = 0; lane < LANES; lane++) {
                const u64 place = u64(addresses[lane]) - u64(low);
                bits |= u64(addresses[lane]);
                bad |= place | (limit - place);
            }
        return high - low >= size && i64(bad) >= 0 && !(bits & u64(size - 1));
    }

  private:
    void settle() {
        if (mask != ALL) {
            const i64 first = addresses[first_lane(mask)];
            for (int lane = 0; lane < LANES; lane++) {
                const i64 on = -i64(mask >> lane & 1);
                addresses[lane] = (addresses[lane] & on) | (first & ~on);
            }
            return;
        }
        const u64 first = u64(addresses[0]), step = u64(addresses[1]) - first;
        u64 others = 0, expected = first;
        for (int lane = 0; lane < LANES; lane++, expected += step)
            others |= u64(addresses[lane]) ^ expected;
        stride = i64(step);
        straight = others == 0;
    }
};

// Where lanes find their bytes: lane k at origin + k * step + its address.
struct Memory {
    u8 *origin;
    i64 step;
};

// What one warp asks for, while it is found, checked and counted.
struct Asked {
    Block &block;
    const Op &op;
    const Access &access;
    const u8 *data; // of a store, `size` bytes a lane
    int warp;
    i32 &variable; // in shared memory, of the first lane of the block; -1 where it is not known yet
};

// Check, count and note lanes in one array of global or constant memory; false for a suspicion.
bool in_region(const Asked &asked, i32 space, i32 slot, const Lanes &lanes, bool counted, Memory &found);
// Count a request; return the bytes of a lane that are counted, 0 where another access does its work.
inline i64 price(const Asked &asked, const Request &request) {
    Block &block = asked.block;
    if (asked.access.kind == ATOMIC)
        return count_atomic(block, asked.op, request);
    return block.worker.counters.count(block, request);
}
// Count a request to global or constant memory, and note what it touches.
void count(const Asked &asked, const Request &request, bool counted);

inline bool in_one_region(const Asked &asked, const Lanes &lanes, i32 &slot) {
    const auto &regions = asked.block.launch.regions;
    const i64 found = lanes.addresses[0] >> SLOT_BITS;
    slot = i32(found);
    if (found <= 0 || found >= i64(regions.size()))
        return false;
    const Region &region = regions[size_t(found)];
    return lanes.within(region.base, region.base + region.size, asked.access.size);
}

template <class Move> bool global_lanes(const Asked &asked, i32 space, const Lanes &lanes, Move move) {
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
        // The kernel's parameters, which are not counted.
        move(Memory{const_cast<u8 *>(launch.parameters.data()) - PARAMETER_WINDOW, 0}, lanes);
        return true;
    }
    // Lanes in several arrays: one request, counted on the first of them.
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
        if (asked.access.number[space] >= 0)
            asked.block.worker.counters.rows[size_t(asked.access.number[space] * launch.places + slot)].beside++;
        move(memory, part);
    }
    return true;
}

template <class Move> bool shared_lanes(const Asked &asked, const Lanes &lanes, Move move) {
    Block &block = asked.block;
    const Launch &launch = block.launch;
    const Access &access = asked.access;
    const bool known = access.shared_low <= access.shared_high;
    if (access.size > 16 || !lanes.within(known ? access.shared_low : 0,
                                          known ? access.shared_high : launch.about.shared_size, access.size)) {
        block.suspect("an address in shared memory is out of bounds or misaligned", asked.op);
        return false;
    }
    if (asked.variable < 0) {
        asked.variable = 0;
        const i64 place = lanes.addresses[0] + (access.issued[SHARED] > 0 ? access.shift[SHARED] : 0);
        for (size_t number = 1; number < launch.shared_starts.size() && launch.shared_starts[number] <= place; number++)
            asked.variable = i32(number);
    }
    Request request{access,     SHARED,          asked.variable, asked.warp,
                    lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
    price(asked, request);
    block.worker.races.note(block, asked.op, request, asked.data);
    move(Memory{block.shared, 0}, lanes);
    return true;
}

template <class Move> bool local_lanes(const Asked &asked, const Lanes &lanes, Move move) {
    Block &block = asked.block;
    const Access &access = asked.access;
    const bool known = access.local_low <= access.local_high;
    if (access.kind == ATOMIC || access.skewed ||
        !lanes.within(known ? access.local_low : 0, known ? access.local_high : block.launch.about.local_bytes,
                      access.size)) {
        block.suspect("an address in local memory is out of bounds or misaligned", asked.op);
        return false;
    }
    Request request{access, LOCAL, 0, asked.warp, lanes.mask, lanes.addresses, lanes.straight, lanes.stride};
    block.worker.counters.count(block, request);
    move(Memory{block.local + asked.warp * LANES * block.local_stride, block.local_stride}, lanes);
    return true;
}

// Generic addresses: those in the windows of shared and local memory, all others in global memory.
template <class Move> bool generic_lanes(const Asked &asked, const Lanes &lanes, Move move) {
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

template <class Move> bool by_space(const Asked &asked, const Lanes &lanes, Move move) {
    switch (asked.access.space) {
    case GLOBAL:
    case PARAMETER: return global_lanes(asked, GLOBAL, lanes, move);
    case CONSTANT: return global_lanes(asked, CONSTANT, lanes, move);
    case SHARED: return shared_lanes(asked, lanes, move);
    case LOCAL: return local_lanes(asked, lanes, move);
    default: return generic_lanes(asked, lanes, move);
    }
}

// The lanes of a warp at the addresses in from[0].
inline void fill(const Block &block, const Op &op, int warp, Lanes &lanes) {
    if (op.flags & SHORT_ADDRESS)
        lanes.fill(block.at<i32>(op.from[0]) + warp * LANES, op.immediate, block.mask[warp]);
    else
        lanes.fill(block.at<i64>(op.from[0]) + warp * LANES, op.immediate, block.mask[warp]);
}

} // namespace engine
