// Machine code: loads, stores and atomics, with their sectors and wavefronts.
#include "atomics.hpp"
#include "counts.hpp"
#include "sass.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace engine::sass {

namespace {

// The addresses of a warp's active lanes; the inactive ones have that of the first active one.
struct Addresses {
    i64 of[LANES];
    u32 mask;
};

i64 scaled(const Warp &warp, i32 place, i32 wide, i32 scale, int lane) {
    if (place < 0)
        return 0;
    const u32 low = warp.at(place)[lane];
    return wide == 64 ? i64(low | u64(warp.at(place + 1)[lane]) << 32) : i64(u64(low) << scale);
}
// wide: bits of the sum
void fill(const Warp &warp, i32 place, i32 wide, i32 scale, i32 beside, i32 offset, bool narrow, u32 mask,
          Addresses &into) {
    const u64 plus = u64(scaled(warp, beside, wide == 64 || !narrow ? 64 : 32, 0, 0)) + u64(i64(offset));
    into.mask = mask;
    for (int lane = 0; lane < LANES; lane++) {
        const u64 sum = u64(scaled(warp, place, wide, scale, lane)) + plus;
        into.of[lane] = i64(narrow ? sum & ALL : sum);
    }
    const i64 first = into.of[first_lane(mask)];
    for (int lane = 0; lane < LANES; lane++)
        into.of[lane] = mask >> lane & 1 ? into.of[lane] : first;
}
void fill(const Warp &warp, const Instruction &one, bool narrow, u32 mask, Addresses &into) {
    fill(warp, one.address, one.wide, one.scale, one.beside, one.offset, narrow, mask, into);
}

bool within(const Addresses &all, i64 low, i64 size, i64 each) {
    u64 bad = 0, bits = 0;
    for (int lane = 0; lane < LANES; lane++) {
        const u64 place = u64(all.of[lane]) - u64(low);
        bad |= place | (u64(size - each) - place);
        bits |= u64(all.of[lane]);
    }
    return size >= each && i64(bad) >= 0 && !(bits & u64(each - 1));
}

// Where lanes in one array find their bytes, less their addresses; and the lanes that are in that array.
u8 *array_of(const MachineLaunch &launch, Addresses all, u32 left, i64 size, bool writes, u32 &found) {
    const i64 slot = all.of[first_lane(left)] >> SLOT_BITS;
    if (slot <= 0 || slot >= launch.regions_count)
        return nullptr;
    found = 0;
    for (int lane = 0; lane < LANES; lane++)
        found |= u32(all.of[lane] >> SLOT_BITS == slot) << lane;
    found &= left;
    for (int lane = 0; lane < LANES; lane++)
        all.of[lane] = found >> lane & 1 ? all.of[lane] : all.of[first_lane(found)];
    const Region &region = launch.regions[slot];
    if (!within(all, region.base, region.size, size) || (writes && !region.writable))
        return nullptr;
    return region.data - region.base;
}

// Call `move` for the lanes of each array.
template <class F> bool by_array(Machine &machine, const Addresses &all, i64 size, bool writes, F move) {
    for (u32 left = all.mask; left;) {
        u32 found;
        u8 *origin = array_of(machine.launch, all, left, size, writes, found);
        if (!origin)
            return false;
        move(origin, found);
        left &= ~found;
    }
    return true;
}

template <class T> T read(const u8 *from) {
    T found;
    memcpy(&found, from, sizeof found);
    return found;
}

// Lane k at origin + k * step + its address. mode: 0 signed
void load(Warp &warp, const Instruction &one, const u8 *origin, i64 step, const Addresses &all, u32 mask) {
    if (one.into < 0)
        return;
    for (int word = 0; word < std::max(1, one.size / 4); word++) {
        u32 *into = warp.registers[one.into + word];
        const u8 *from = origin + 4 * word;
        if (one.size >= 4 && mask == ALL)
            for (int lane = 0; lane < LANES; lane++)
                into[lane] = read<u32>(from + lane * step + all.of[lane]);
        else
            for (u32 rest = mask; rest; rest &= rest - 1) {
                const int lane = first_lane(rest);
                const u8 *at = from + lane * step + all.of[lane];
                into[lane] = one.size >= 4   ? read<u32>(at)
                             : one.size == 2 ? (one.mode[0] ? u32(i32(read<i16>(at))) : read<u16>(at))
                                             : (one.mode[0] ? u32(i32(read<i8>(at))) : read<u8>(at));
            }
    }
}
void store(const Warp &warp, const Instruction &one, u8 *origin, i64 step, const Addresses &all, u32 mask) {
    const i32 from = one.sources[0].place;
    for (int word = 0; word < std::max(1, one.size / 4); word++) {
        // Behind RZ there is no pair of registers but RZ again.
        const u32 *value = warp.at(from < CONSTANTS ? from + word : from);
        for (u32 rest = mask; rest; rest &= rest - 1) {
            const int lane = first_lane(rest);
            memcpy(origin + lane * step + all.of[lane] + 4 * word, value + lane, size_t(std::min(4, one.size)));
        }
    }
}

template <bool LOADS> bool global(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, one, false, mask, all);
    pieces = sectors(all.of, mask, one.size).pieces;
    return by_array(machine, all, one.size, !LOADS, [&](u8 *origin, u32 found) {
        LOADS ? load(warp, one, origin, 0, all, found) : store(warp, one, origin, 0, all, found);
    });
}
template <bool LOADS> bool shared(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, one, true, mask, all);
    if (!within(all, 0, i64(machine.shared.size()), one.size))
        return false;
    pieces = wavefronts(all.of, mask, one.size, LOADS).pieces;
    u8 *origin = machine.shared.data();
    LOADS ? load(warp, one, origin, 0, all, mask) : store(warp, one, origin, 0, all, mask);
    return true;
}
// A word of local memory lies beside those of the other lanes.
template <bool LOADS> bool local(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &pieces) {
    Addresses all;
    const i64 size = machine.launch.local_size;
    fill(warp, one, true, mask, all);
    if (!within(all, 0, size, one.size))
        return false;
    i64 touched[LANES * 4];
    int count = 0;
    for (u32 rest = mask; rest; rest &= rest - 1)
        for (int word = 0; word < std::max(1, one.size / 4); word++)
            touched[count++] = (all.of[first_lane(rest)] / 4 + word) * 4 + first_lane(rest) / 8;
    std::sort(touched, touched + count);
    pieces = std::unique(touched, touched + count) - touched;
    u8 *origin = warp.local.data();
    LOADS ? load(warp, one, origin, size, all, mask) : store(warp, one, origin, size, all, mask);
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

// mode: 0 Atomic, 1 AtomicType
template <class T, class S, class F>
void update(Warp &warp, const Instruction &one, u8 *origin, const Addresses &all, u32 mask) {
    auto operand = [&](int number, int lane) {
        u32 words[2] = {};
        for (size_t word = 0; word < sizeof(T) / 4; word++)
            words[word] = warp.at(one.sources[number].place + i32(word))[lane];
        T found;
        memcpy(&found, words, sizeof found);
        return found;
    };
    u32 found[2][LANES] = {}, served[2] = {}; // lanes; banks of this turn, of each half warp for 64 bits
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        u8 *at = origin + all.of[lane];
        const T old = read<T>(at), by = operand(0, lane);
        T now = old;
        if (one.mode[0] == CAST_SPIN) { // of a bank one lane, if the word is as it was read; it gets 1
            u32 &banks = served[sizeof(T) == 8 && lane >= LANES / 2];
            const u32 bank = 1u << bank_of(all.of[lane], sizeof(T));
            const bool taken = old != by || banks & bank;
            banks |= bank;
            if (!taken)
                now = operand(1, lane);
            found[0][lane] = !taken;
        } else {
            now = one.mode[0] != SWAP ? changed<T, S, F>(one.mode[0], one.mode[1], old, by)
                  : old == by         ? operand(1, lane)
                                      : old;
            memcpy(&found[0][lane], &old, 4);
            if (sizeof(T) == 8)
                found[1][lane] = u32(u64(old) >> 32);
        }
        memcpy(at, &now, sizeof now);
    }
    for (size_t word = 0; one.into >= 0 && word < sizeof(T) / 4; word++)
        for (u32 rest = mask; rest; rest &= rest - 1)
            warp.registers[one.into + i32(word)][first_lane(rest)] = found[word][first_lane(rest)];
}
void update(Warp &warp, const Instruction &one, u8 *origin, const Addresses &all, u32 mask) {
    one.size == 8 ? update<u64, i64, f64>(warp, one, origin, all, mask)
                  : update<u32, i32, f32>(warp, one, origin, all, mask);
}
bool global_atomic(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, one, false, mask, all);
    pieces = atomic_sectors(all.of, mask, one.size);
    return by_array(machine, all, one.size, true,
                    [&](u8 *origin, u32 found) { update(warp, one, origin, all, found); });
}
bool shared_atomic(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &pieces) {
    Addresses all;
    fill(warp, one, true, mask, all);
    if (!within(all, 0, i64(machine.shared.size()), one.size))
        return false;
    const i32 how = one.mode[0], served = one.mode[2] ? WORDS : how == SWAP ? SWAPPED : OF_LANES;
    // In a turn of a loop all lanes that are left try once, and each half warp by itself for 64 bits.
    const bool halves = one.size == 8 && mask & 0xFFFFu && mask >> 16;
    pieces = how == CAST_SPIN ? 2 + 2 * halves : atomic_wavefronts(all.of, mask, one.size, served);
    update(warp, one, machine.shared.data(), all, mask);
    return true;
}

// From global to shared memory; lanes whose condition fails write zeros. mode: 0 to 2 register, uniform register and
// offset in shared memory
bool copy(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &pieces) {
    const u32 reads = mask & warp.holds(one.conditions[0]);
    Addresses from, to;
    fill(warp, one.mode[0], 32, 0, one.mode[1], one.mode[2], true, mask, to);
    if (!within(to, 0, i64(machine.shared.size()), one.size))
        return false;
    for (u32 rest = mask & ~reads; rest; rest &= rest - 1)
        memset(machine.shared.data() + to.of[first_lane(rest)], 0, size_t(one.size));
    if (!reads)
        return true;
    fill(warp, one, false, reads, from);
    fill(warp, one.mode[0], 32, 0, one.mode[1], one.mode[2], true, reads, to);
    pieces = sectors(from.of, reads, one.size).pieces;
    if (one.size == 16) {
        i64 both[LANES];
        for (int lane = 0; lane < LANES; lane++)
            both[lane] = (from.of[lane] >> 7) << 20 | (to.of[lane] >> 5);
        std::sort(both, both + LANES);
        pieces = std::max(pieces, i64(std::unique(both, both + LANES) - both));
    }
    return by_array(machine, from, one.size, false, [&](const u8 *origin, u32 found) {
        for (u32 rest = found; rest; rest &= rest - 1)
            memcpy(machine.shared.data() + to.of[first_lane(rest)], origin + from.of[first_lane(rest)],
                   size_t(one.size));
    });
}

// From a bank of constants at a place that a register gives. mode: 0 signed, 1 bank
bool constant(Machine &machine, Warp &warp, const Instruction &one, u32 mask, i64 &) {
    Addresses all;
    fill(warp, one, true, mask, all);
    if (!within(all, 0, machine.launch.bank_sizes[one.mode[1]], one.size))
        return false;
    load(warp, one, machine.launch.banks[one.mode[1]], 0, all, mask);
    return true;
}

} // namespace

const MemoryOperation MEMORY[] = {
    {"ldg", global<true>}, {"stg", global<false>}, {"lds", shared<true>},    {"sts", shared<false>},
    {"ldl", local<true>},  {"stl", local<false>},  {"atomg", global_atomic}, {"atoms", shared_atomic},
    {"ldgsts", copy},      {"ldc", constant},
};
const size_t MEMORY_COUNT = sizeof MEMORY / sizeof *MEMORY;

} // namespace engine::sass
