// Machine code: loads, stores and atomics, with their sectors and wavefronts.
#include "atomics.hpp"
#include "counts.hpp"
#include "lanes.hpp"
#include "sass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace engine::LEVEL {

namespace {

using sass::Instruction;
using sass::Machine;
using sass::Warp;

// The addresses of a warp's active lanes. Inactive lanes have the address of the first active lane.
struct Addresses {
    i64 of[LANES];
    u32 mask;
};

// Return the words of a register for all 32 lanes. For register -1 (none) they are zeros.
const u32 *lanes_at(const Warp &warp, i32 place) {
    alignas(64) static constexpr u32 ZEROS[LANES] = {};
    return place < 0 ? ZEROS : warp.at(place);
}
// Compute the addresses of the lanes. wide: how many bits of the address are in registers; narrow: whether the sum is
// cut to 32 bits.
void fill(const Warp &warp, i32 place, i32 wide, i32 scale, i32 beside, i32 offset, bool narrow, u32 mask,
          Addresses &into) {
    const bool both = wide == 64;
    const u32 *low = lanes_at(warp, place), *high = lanes_at(warp, both && place >= 0 ? place + 1 : -1);
    const u64 above = beside >= 0 && (both || !narrow) ? u64(warp.at(beside + 1)[0]) << 32 : 0;
    const u64 plus = (lanes_at(warp, beside)[0] | above) + u64(i64(offset)), keep = narrow ? u64(ALL) : ~u64(0);
    into.mask = mask;
    for (int lane = 0; lane < LANES; lane++)
        into.of[lane] = i64(((u64(low[lane]) << scale | u64(high[lane]) << 32) + plus) & keep);
    if (mask == ALL)
        return;
    const i64 first = into.of[first_lane(mask)];
    for (int lane = 0; lane < LANES; lane++)
        into.of[lane] = mask & bit<u32>(lane) ? into.of[lane] : first;
}
void fill(const Warp &warp, const Instruction &instruction, bool narrow, u32 mask, Addresses &into) {
    fill(warp, instruction.address, instruction.wide, instruction.wide == 64 ? 0 : instruction.scale,
         instruction.beside, instruction.offset, narrow, mask, into);
}

bool within(const i64 *addresses, i64 low, i64 size, i64 width) {
    u64 bad = 0, bits = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const u64 place = u64(addresses[lane]) - u64(low);
        bad |= place | (u64(size - width) - place);
        bits |= u64(addresses[lane]);
    }
    return size >= width && i64(bad) >= 0 && !(bits & u64(width - 1));
}

// Call `move` once for each array that the lanes access, and for shared and local memory. It gets a pointer (an address
// of the array is added to it), the lanes that access this array, and how many bytes apart the memory of two lanes is
// (0, but in local memory). near: the lanes that access shared or local memory.
template <class F>
bool by_array(Machine &machine, Warp &warp, const Addresses &all, i64 size, bool writes, u32 &near, F move) {
    i32 fetched = sass::NEAR;
    const auto touch = [&](i64 slot, u32 lanes) {
        fetched = std::max(fetched, machine.touch(warp, slot, all.of, lanes, size));
        machine.fetched = fetched;
    };
    for (u32 left = all.mask; left;) {
        const i64 slot = all.of[first_lane(left)] >> SLOT_BITS;
        if (slot == 0) {
            const bool is_local = all.of[first_lane(left)] >= LOCAL_WINDOW;
            const i64 base = is_local ? LOCAL_WINDOW : SHARED_WINDOW;
            const i64 bytes = is_local ? machine.launch.local_size : i64(machine.shared.size());
            const u32 lanes = left & lanes_where<u64>([&](int lane) {
                                  return !(all.of[lane] >> SLOT_BITS) && (all.of[lane] >= LOCAL_WINDOW) == is_local;
                              });
            i64 own[LANES];
            for (int lane = 0; lane < LANES; lane++)
                own[lane] = all.of[lanes >> lane & 1 ? lane : first_lane(lanes)];
            if (!within(own, base, bytes, size))
                return false;
            move((is_local ? warp.local.data() : machine.shared.data()) - base, lanes, is_local ? bytes : 0);
            near |= lanes;
            left &= ~lanes;
            continue;
        }
        if (slot < 0 || slot >= machine.launch.regions_count)
            return false;
        const Region &region = machine.launch.regions[slot];
        if (writes && !region.writable)
            return false;
        const auto kept = [&](const i64 *addresses, u32 lanes) {
            return !writes || !machine.launch.changes || machine.keep(slot, addresses, lanes, size);
        };
        if (left == all.mask && within(all.of, region.base, region.size, size)) {
            if (!kept(all.of, left))
                return false;
            move(region.data - region.base, left, 0);
            touch(slot, left);
            return true;
        }
        i64 own[LANES];
        const u32 lanes = left & lanes_where<u64>([&](int lane) { return all.of[lane] >> SLOT_BITS == slot; });
        for (int lane = 0; lane < LANES; lane++)
            own[lane] = all.of[lanes >> lane & 1 ? lane : first_lane(lanes)];
        if (!within(own, region.base, region.size, size) || !kept(own, lanes))
            return false;
        move(region.data - region.base, lanes, 0);
        touch(slot, lanes);
        left &= ~lanes;
    }
    return true;
}

template <class T> T read(const u8 *from) {
    T value;
    memcpy(&value, from, sizeof value);
    return value;
}

// Load. The bytes of lane k are at origin + k * step + the lane's address. mode[0]: whether the elements are signed.
void load(Warp &warp, const Instruction &instruction, const u8 *origin, i64 step, const Addresses &all, u32 mask) {
    if (instruction.into < 0)
        return;
    for (int word = 0; word < std::max(1, instruction.size / 4); word++) {
        u32 *into = warp.registers[instruction.into + word];
        const u8 *from = origin + 4 * word;
        if (instruction.size >= 4 && mask == ALL)
            for (int lane = 0; lane < LANES; lane++)
                into[lane] = read<u32>(from + lane * step + all.of[lane]);
        else
            for (u32 rest = mask; rest; rest &= rest - 1) {
                const int lane = first_lane(rest);
                const u8 *at = from + lane * step + all.of[lane];
                into[lane] = instruction.size >= 4   ? read<u32>(at)
                             : instruction.size == 2 ? (instruction.mode[0] ? u32(i32(read<i16>(at))) : read<u16>(at))
                                                     : (instruction.mode[0] ? u32(i32(read<i8>(at))) : read<u8>(at));
            }
    }
}
void store(const Warp &warp, const Instruction &instruction, u8 *origin, i64 step, const Addresses &all, u32 mask) {
    const i32 from = instruction.sources[0].place;
    for (int word = 0; word < std::max(1, instruction.size / 4); word++) {
        // RZ has no next register: a pair of registers that begins with RZ is RZ twice.
        const u32 *value = warp.at(from < sass::CONSTANTS ? from + word : from);
        u8 *into = origin + 4 * word;
        if (instruction.size >= 4 && mask == ALL)
            for (int lane = 0; lane < LANES; lane++)
                memcpy(into + lane * step + all.of[lane], value + lane, 4);
        else
            for (u32 rest = mask; rest; rest &= rest - 1) {
                const int lane = first_lane(rest);
                memcpy(into + lane * step + all.of[lane], value + lane, size_t(std::min(4, instruction.size)));
            }
    }
}

// Return the sectors or wavefronts of a request. The last result is kept, because the cost depends only on the
// distances between the lanes and on the first lane's position within `unit` bytes.
template <class F>
i64 cached_cost(Machine &machine, const Instruction &instruction, const Addresses &all, i64 unit, F cost) {
    sass::CachedCost &known = machine.cached_costs[size_t(&instruction - machine.launch.code)];
    const i64 first = all.of[0];
    i64 differences = 0;
    for (int lane = 0; lane < LANES; lane++)
        differences |= (all.of[lane] - first) ^ known.steps[lane];
    if (!differences && known.mask == all.mask && known.phase == (first & (unit - 1)))
        return known.pieces;
    for (int lane = 0; lane < LANES; lane++)
        known.steps[lane] = all.of[lane] - first;
    known.mask = all.mask;
    known.phase = first & (unit - 1);
    return known.pieces = cost();
}
i64 sectors_of(Machine &machine, const Instruction &instruction, const Addresses &all) {
    return cached_cost(machine, instruction, all, 32,
                       [&] { return sectors(all.of, all.mask, instruction.size).pieces; });
}

template <bool LOADS> bool global(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, instruction, false, mask, all);
    pieces = sectors_of(machine, instruction, all);
    u32 near = 0;
    const bool ran = by_array(machine, warp, all, instruction.size, !LOADS, near, [&](u8 *origin, u32 lanes, i64 step) {
        LOADS ? load(warp, instruction, origin, step, all, lanes) : store(warp, instruction, origin, step, all, lanes);
    });
    if (near) // generic accesses to shared and local memory have no sectors here
        pieces = mask & ~near ? sectors(all.of, mask & ~near, instruction.size).pieces : 0;
    return ran;
}
template <bool LOADS> bool shared(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, instruction, true, mask, all);
    if (!within(all.of, 0, i64(machine.shared.size()), instruction.size))
        return false;
    // The unit is 4 bytes, because the cost does not depend on which word the first lane accesses.
    pieces = cached_cost(machine, instruction, all, 4,
                         [&] { return wavefronts(all.of, mask, instruction.size, LOADS).pieces; });
    u8 *origin = machine.shared.data();
    LOADS ? load(warp, instruction, origin, 0, all, mask) : store(warp, instruction, origin, 0, all, mask);
    return true;
}
// Access local memory. There, a word of one lane is followed by the same word of the next lane.
template <bool LOADS> bool local(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &pieces) {
    Addresses all;
    const i64 size = machine.launch.local_size;
    fill(warp, instruction, true, mask, all);
    if (!within(all.of, 0, size, instruction.size))
        return false;
    i64 touched[LANES * 4];
    int count = 0;
    for (u32 rest = mask; rest; rest &= rest - 1)
        for (int word = 0; word < std::max(1, instruction.size / 4); word++)
            touched[count++] = (all.of[first_lane(rest)] / 4 + word) * 4 + first_lane(rest) / 8;
    std::sort(touched, touched + count);
    pieces = std::unique(touched, touched + count) - touched;
    u8 *origin = warp.local.data();
    LOADS ? load(warp, instruction, origin, size, all, mask) : store(warp, instruction, origin, size, all, mask);
    return true;
}

enum Atomic : i32 { ADD, MIN, MAX, AND, OR, XOR, EXCHANGE, INC, DEC, SWAP, CAST_SPIN };
enum AtomicType : i32 { UNSIGNED, SIGNED, FLOAT };

template <class T, class S, class F> T changed(i32 how, i32 type, T old, T by) {
    const bool sign = type == SIGNED;
    F x, y;
    switch (how) {
    case ADD:
        if (type != FLOAT)
            return old + by;
        memcpy(&x, &old, sizeof x), memcpy(&y, &by, sizeof y);
        x += y;
        memcpy(&old, &x, sizeof x);
        return old;
    case MIN: return sign ? T(std::min(S(old), S(by))) : std::min(old, by);
    case MAX: return sign ? T(std::max(S(old), S(by))) : std::max(old, by);
    case AND: return old & by;
    case OR: return old | by;
    case XOR: return old ^ by;
    case INC: return old >= by ? 0 : old + 1;
    case DEC: return old == 0 || old > by ? by : old - 1;
    default: return by;
    }
}

// Perform an atomic. mode[0]: an Atomic; mode[1]: an AtomicType.
template <class T, class S, class F>
void update(Warp &warp, const Instruction &instruction, u8 *origin, const Addresses &all, u32 mask) {
    auto operand = [&](int number, int lane) {
        u32 words[2] = {};
        for (size_t word = 0; word < sizeof(T) / 4; word++)
            words[word] = warp.at(instruction.sources[number].place + i32(word))[lane];
        T value;
        memcpy(&value, words, sizeof value);
        return value;
    };
    // results: by lane; served: mask of the banks that have stored in this iteration, separately for each half warp
    // with 64 bits
    u32 results[2][LANES] = {}, served[2] = {};
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        u8 *at = origin + all.of[lane];
        const T old = read<T>(at), by = operand(0, lane);
        T now = old;
        if (instruction.mode[0] == CAST_SPIN) { // in each bank one lane stores, if its word has not changed, and gets 1
            u32 &banks = served[sizeof(T) == 8 && lane >= LANES / 2];
            const u32 bank = 1u << bank_of(all.of[lane], sizeof(T));
            const bool taken = old != by || banks & bank;
            banks |= bank;
            if (!taken)
                now = operand(1, lane);
            results[0][lane] = !taken;
        } else {
            now = instruction.mode[0] != SWAP ? changed<T, S, F>(instruction.mode[0], instruction.mode[1], old, by)
                  : old == by                 ? operand(1, lane)
                                              : old;
            memcpy(&results[0][lane], &old, 4);
            if (sizeof(T) == 8)
                results[1][lane] = u32(u64(old) >> 32);
        }
        memcpy(at, &now, sizeof now);
    }
    if (const i32 stored = instruction.into_predicate[0]; stored >= 0)
        for (u32 rest = mask; rest; rest &= rest - 1) {
            u32 &lanes = warp.predicates[stored];
            lanes = results[0][first_lane(rest)] ? lanes | (rest & -rest) : lanes & ~(rest & -rest);
        }
    for (size_t word = 0; instruction.into >= 0 && word < sizeof(T) / 4; word++)
        for (u32 rest = mask; rest; rest &= rest - 1)
            warp.registers[instruction.into + i32(word)][first_lane(rest)] = results[word][first_lane(rest)];
}
void update(Warp &warp, const Instruction &instruction, u8 *origin, const Addresses &all, u32 mask) {
    instruction.size == 8 ? update<u64, i64, f64>(warp, instruction, origin, all, mask)
                          : update<u32, i32, f32>(warp, instruction, origin, all, mask);
}
bool global_atomic(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, instruction, false, mask, all);
    pieces = atomic_sectors(all.of, mask, instruction.size);
    u32 near = 0;
    const bool ran = by_array(machine, warp, all, instruction.size, true, near,
                              [&](u8 *origin, u32 lanes, i64) { update(warp, instruction, origin, all, lanes); });
    if (near)
        pieces = mask & ~near ? atomic_sectors(all.of, mask & ~near, instruction.size) : 0;
    machine.fetched = sass::SHARED_BY_BLOCKS; // the L2 does it
    return ran;
}
bool shared_atomic(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, instruction, true, mask, all);
    if (!within(all.of, 0, i64(machine.shared.size()), instruction.size))
        return false;
    const i32 how = instruction.mode[0], served = instruction.mode[2] ? WORDS : how == SWAP ? SWAPPED : OF_LANES;
    // In each iteration of the loop all remaining lanes try once. With 64 bits, the two halves of the warp try
    // separately.
    const bool halves = instruction.size == 8 && mask & 0xFFFFu && mask >> 16;
    pieces = how == CAST_SPIN ? 2 + 2 * halves : atomic_wavefronts(all.of, mask, instruction.size, served);
    update(warp, instruction, machine.shared.data(), all, mask);
    return true;
}

// Copy from global to shared memory. Lanes whose condition fails write zeros. The address in shared memory is mode[0]
// (a register) + mode[1] (a uniform register) + mode[2] (an offset).
bool copy(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &pieces) {
    const u32 reads = mask & warp.holds(instruction.conditions[0]);
    Addresses from, to;
    fill(warp, instruction.mode[0], 32, 0, instruction.mode[1], instruction.mode[2], true, mask, to);
    if (!within(to.of, 0, i64(machine.shared.size()), instruction.size))
        return false;
    for (u32 rest = mask & ~reads; rest; rest &= rest - 1)
        memset(machine.shared.data() + to.of[first_lane(rest)], 0, size_t(instruction.size));
    if (!reads)
        return true;
    fill(warp, instruction, false, reads, from);
    fill(warp, instruction.mode[0], 32, 0, instruction.mode[1], instruction.mode[2], true, reads, to);
    pieces = sectors_of(machine, instruction, from);
    if (instruction.size == 16) {
        i64 both[LANES];
        for (int lane = 0; lane < LANES; lane++)
            both[lane] = (from.of[lane] >> 7) << 20 | (to.of[lane] >> 5);
        std::sort(both, both + LANES);
        pieces = std::max(pieces, i64(std::unique(both, both + LANES) - both));
    }
    u32 near = 0;
    return by_array(machine, warp, from, instruction.size, false, near, [&](const u8 *origin, u32 lanes, i64) {
        for (u32 rest = lanes; rest; rest &= rest - 1)
            memcpy(machine.shared.data() + to.of[first_lane(rest)], origin + from.of[first_lane(rest)],
                   size_t(instruction.size));
    });
}

// Load from a constant bank, at an address in a register. mode[0]: whether the elements are signed; mode[1]: the bank.
bool constant(Machine &machine, Warp &warp, const Instruction &instruction, u32 mask, i64 &) {
    Addresses all;
    fill(warp, instruction, true, mask, all);
    if (!within(all.of, 0, machine.launch.bank_sizes[instruction.mode[1]], instruction.size))
        return false;
    load(warp, instruction, machine.launch.banks[instruction.mode[1]], 0, all, mask);
    return true;
}

const sass::MemoryOperation OPERATIONS[] = {
    {"ldg", global<true>}, {"stg", global<false>}, {"lds", shared<true>},    {"sts", shared<false>},
    {"ldl", local<true>},  {"stl", local<false>},  {"atomg", global_atomic}, {"atoms", shared_atomic},
    {"ldgsts", copy},      {"ldc", constant},
};

} // namespace

sass::MemoryTable machine_memory() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
