// Atomic operations: they update memory, and their cost and contention are counted.
#include "addresses.hpp"
#include "halves.hpp"

namespace engine {

namespace {

// Flags of atomics, in addition to SHORT_ADDRESS. ONE: the atomic adds the constant 1. SHOWS: its result depends on the
// order of the blocks. SWAPS: its result depends on this order only if lanes store different values.
constexpr i32 ONE = 2, SHOWS = 4, SWAPS = 8;
constexpr size_t MOST_KEPT = 1 << 21; // the same limit as in cudabench/simulator/count/contention.py

// The cost of a request, see cudabench/simulator/count/atomics.py.
struct AtomicCost {
    i64 pieces = 0, ideal = 0, reloads = 0;
};

// Return how many lanes access the bank that the most lanes access.
i64 fullest_bank(const i64 *addresses, u32 mask, int width) {
    i64 counts[LANES] = {}, most = 0;
    for (u32 rest = mask; rest; rest &= rest - 1)
        most = std::max(most, ++counts[bank_of(addresses[first_lane(rest)], width)]);
    return most;
}

// Return the cost of an atomic that the machine code performs in a loop. In each iteration all remaining lanes load,
// and then at most one lane stores in each bank.
AtomicCost loop_cost(const i64 *addresses, u32 waiting, int width) {
    const int size = width == 8 ? 16 : LANES, shift = width == 8 ? 3 : 2;
    auto groups = [&](u32 lanes) { return size == LANES ? 1 : i64((lanes & 0xFFFFu) != 0) + (lanes >> 16 != 0); };
    AtomicCost cost;
    cost.ideal = 3 * groups(waiting);
    while (waiting) {
        cost.reloads += wavefronts(addresses, waiting, width, true).pieces;
        cost.pieces += 2 * groups(waiting);
        i64 stored[LANES]; // for each bank, the word that was stored in this iteration
        std::fill_n(stored, LANES, i64(-1));
        u32 done = 0;
        for (int first = 0; first < LANES; first += size) {
            u32 served = 0; // mask of the banks in which a lane has stored
            const u32 group = size == LANES ? ALL : 0xFFFFu << first;
            for (u32 rest = waiting & group; rest; rest &= rest - 1) {
                const int lane = first_lane(rest), bank = bank_of(addresses[lane], width);
                if (served >> bank & 1)
                    continue;
                served |= 1u << bank;
                const i64 word = addresses[lane] >> shift;
                done |= stored[bank] != word ? rest & -rest : 0u;
                stored[bank] = word;
            }
        }
        waiting &= ~done;
    }
    cost.pieces += cost.reloads;
    return cost;
}

AtomicCost shared_cost(const i64 *addresses, u32 mask, int width, i32 served) {
    if (served == LOOP)
        return loop_cost(addresses, mask, width);
    AtomicCost cost;
    if (served == WORDS) {
        const Cost stored = wavefronts(addresses, mask, width, false);
        return {stored.pieces, stored.ideal};
    }
    for (u32 group : {width == 8 ? 0xFFFFu : ALL, width == 8 ? 0xFFFF0000u : 0u}) {
        const i64 most = fullest_bank(addresses, mask & group, width);
        cost.pieces += most;
        cost.ideal += most > 0;
    }
    if (served == SWAPPED)
        cost = {2 * cost.pieces, 2 * cost.ideal};
    return cost;
}

// A hash map for one request: at most 32 integer keys, each with a small number.
struct SmallMap {
    static constexpr u32 SIZE = 64;
    i64 keys[SIZE];
    u8 at[SIZE]; // the position of the key in the order of insertion, plus one; 0: the entry is empty
    SmallMap() { std::memset(at, 0, sizeof at); }
    u8 &operator[](i64 key) {
        u32 place = u32(u64(key) * 0x9E3779B97F4A7C15ull >> 58);
        while (at[place] && keys[place] != key)
            place = (place + 1) % SIZE;
        keys[place] = key;
        return at[place];
    }
};

Places places_of(const i64 *addresses, u32 mask) {
    Places places;
    i64 differences = 0;
    for (int lane = 0; lane < LANES; lane++) // inactive lanes have the address of an active one
        differences |= addresses[lane] ^ addresses[0];
    if (!differences) {
        places.count = 1;
        places.address[0] = addresses[0];
        places.lanes[0] = lanes_of(mask);
        return places;
    }
    SmallMap known;
    for (u32 rest = mask; rest; rest &= rest - 1) {
        const i64 address = addresses[first_lane(rest)];
        u8 &at = known[address];
        if (!at) {
            places.address[places.count] = address;
            places.lanes[places.count++] = 0;
            at = u8(places.count);
        }
        places.lanes[at - 1]++;
    }
    return places;
}

// In each sector, find the word that the most lanes access; the sector is counted once for each of these lanes.
AtomicCost global_cost(const Places &places, i64 size) {
    AtomicCost cost;
    cost.ideal = (places.count * size + 31) / 32;
    SmallMap known;
    i32 most[LANES];
    int sectors = 0;
    for (int place = 0; place < places.count; place++) {
        u8 &at = known[places.address[place] >> 5];
        if (!at) {
            most[sectors++] = 0;
            at = u8(sectors);
        }
        most[at - 1] = std::max(most[at - 1], places.lanes[place]);
    }
    for (int sector = 0; sector < sectors; sector++)
        cost.pieces += most[sector];
    return cost;
}

} // namespace

i64 atomic_sectors(const i64 *addresses, u32 mask, i64 size) {
    return global_cost(places_of(addresses, mask), size).pieces;
}
i64 atomic_wavefronts(const i64 *addresses, u32 mask, int width, i32 served) {
    return shared_cost(addresses, mask, width, served).pieces;
}

namespace {

// Return the sum of two 16-bit floats, computed in a wider type and rounded once.
template <class K> u32 sum(u32 x, u32 y) {
    const f64 total = f64(K::wide(x & 0xFFFF)) + f64(K::wide(y & 0xFFFF));
    return total != total ? 0x7FFF : K::rounded(base::to_odd(total), 0) & 0xFFFF;
}
template <class K> u32 sums(u32 x, u32 y) { return sum<K>(x, y) | sum<K>(x >> 16, y >> 16) << 16; }

// Update memory that other threads of the host may change at the same time. The caller does not need the old value.
template <class T, class F> void update_together(u8 *data, T value, F combine) {
    T *place = reinterpret_cast<T *>(data);
    T old = __atomic_load_n(place, __ATOMIC_RELAXED);
    while (
        !__atomic_compare_exchange_n(place, &old, combine(old, value, T()), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
}

// Perform an atomic on elements of type T. from[0] is the address, from[1] and from[2] the operands; into[0] gets the
// old value. COMMUTES: lanes may be combined before they reach memory, and blocks may run in any order.
template <class T, bool COMMUTES, class F> void atomic(Block &block, const Op &op, F combine) {
    const Access &access = block.launch.accesses[size_t(op.access)];
    const T *first = block.at<T>(op.from[1]), *second = op.from[2] < 0 ? first : block.at<T>(op.from[2]);
    T *into = access.returns ? block.at<T>(op.into[0]) : nullptr;
    const bool concurrent = block.launch.workers.size() > 1;
    block.worker.atomics.begin(op.access);
    i32 variable = -1;
    for (int warp = 0; warp < block.warps; warp++, first += LANES, second += LANES) {
        if (!block.mask[warp])
            continue;
        Lanes lanes;
        fill(block, op, warp, lanes);
        auto move = [&](const Memory &memory, const Lanes &part) {
            for (u32 rest = part.mask; rest; rest &= rest - 1) {
                int lane = first_lane(rest);
                const i64 address = part.addresses[lane];
                T operand = first[lane], old;
                if constexpr (COMMUTES)
                    if (!into) { // first combine neighbouring lanes with the same address
                        for (u32 next; (next = rest & (rest - 1)) && part.addresses[first_lane(next)] == address;
                             rest = next)
                            operand = combine(operand, first[first_lane(next)], T());
                        if (concurrent && memory.origin != block.shared) {
                            update_together(memory.origin + address, operand, combine);
                            continue;
                        }
                    }
                std::memcpy(&old, memory.origin + address, sizeof old);
                const T changed = combine(old, operand, second[lane]);
                std::memcpy(memory.origin + address, &changed, sizeof changed);
                if (into)
                    into[warp * LANES + lane] = old;
            }
        };
        if (!by_space(WarpAccess{block, op, access, reinterpret_cast<const u8 *>(first), warp, variable}, lanes, move))
            return;
    }
}

#define COMMUTING(T, E) [](Block &b, const Op &o) { atomic<T, true>(b, o, [](T x, T y, T) { return T(E); }); }
#define OTHER(T, E) [](Block &b, const Op &o) { atomic<T, false>(b, o, [](T x, T y, T) { return T(E); }); }
#define COMPARE(T) [](Block &b, const Op &o) { atomic<T, false>(b, o, [](T x, T y, T z) { return x == y ? z : x; }); }

} // namespace

Atomics::Atomics(const Launch &launch) : contentions(launch.accesses.size()), executions(launch.accesses.size()) {}

void Atomics::start() { std::fill(executions.begin(), executions.end(), 0); }

void Atomics::contend(i32 access, i64 place, const Places &places) {
    Contention &contention = contentions[size_t(access)];
    if (contention.full)
        return;
    for (int k = 0; k < places.count; k++) {
        Hits &entry = contention.at[places.address[k]];
        entry.blocks += !entry.hits || entry.last != place;
        entry.hits += places.lanes[k];
        entry.last = place;
    }
    if (contention.at.size() > MOST_KEPT) {
        contention.full = true;
        contention.at.clear();
    }
}

bool Atomics::order(const Op &op, bool shows, i64 place, const Places &places) {
    bool wrong = false;
    for (int k = 0; k < places.count; k++) {
        FirstUse &entry = first[places.address[k]];
        if (!entry.code) {
            entry.place = place;
            entry.execution = execution;
            entry.access = op.access;
            entry.code = op.code + 1;
        }
        entry.shows |= shows;
        entry.several_blocks |= entry.place != place;
        entry.several_executions |= entry.execution != execution || entry.access != op.access;
        entry.several_operations |= entry.code != op.code + 1;
        wrong |= entry.several_blocks && entry.several_executions && (entry.shows || entry.several_operations);
    }
    return wrong;
}

void Atomics::swap(const Request &request, const u8 *data, i64 size) {
    for (u32 rest = request.mask; rest; rest &= rest - 1) {
        FirstUse &entry = first[request.addresses[first_lane(rest)]];
        u64 value = 0;
        std::memcpy(&value, data + first_lane(rest) * size, size_t(size));
        entry.shows |= entry.swapped && entry.value != value;
        entry.value = value;
        entry.swapped = true;
    }
}

i64 count_atomic(Block &block, const Op &op, const Request &request, const u8 *data) {
    const Access &access = request.access;
    const Launch &launch = block.launch;
    Atomics &atomics = block.worker.atomics;
    const bool by_one_lane = access.issued[request.space] != AS_IT_IS;
    const bool compared = launch.about.ordered && launch.order.size() > 1;
    AtomicCost cost;
    if (!launch.about.checked && (request.space == SHARED || !compared))
        return 0;
    if (request.space == SHARED) {
        const bool adds_one = (op.flags & ONE) && !access.returns && access.served == OF_LANES;
        cost = shared_cost(request.addresses, request.mask, access.size, adds_one ? WORDS : access.served);
    } else {
        const Places places = places_of(request.addresses, request.mask);
        const bool shows = access.returns || (op.flags & SHOWS);
        if (compared && (op.flags & SWAPS))
            atomics.swap(request, data, access.size);
        if (compared && atomics.order(op, shows, block.place, places))
            block.suspect("blocks that run one after another have other results than blocks in step", op);
        if (!launch.about.checked)
            return 0;
        cost = global_cost(places, access.size);
        atomics.contend(op.access, block.place, places);
    }
    if (by_one_lane)
        cost = {1, 1};
    block.worker.counters.add(block, request, Cost{cost.pieces, cost.ideal}, cost.reloads);
    return access.size;
}

const std::vector<Operation> &atomic_operations() {
    static const std::vector<Operation> all = {
        {"atom.add.32", COMMUTING(u32, x + y)},
        {"atom.add.64", COMMUTING(u64, x + y)},
        {"atom.and.32", COMMUTING(u32, x & y)},
        {"atom.and.64", COMMUTING(u64, x & y)},
        {"atom.or.32", COMMUTING(u32, x | y)},
        {"atom.or.64", COMMUTING(u64, x | y)},
        {"atom.xor.32", COMMUTING(u32, x ^ y)},
        {"atom.xor.64", COMMUTING(u64, x ^ y)},
        {"atom.min.u32", COMMUTING(u32, y < x ? y : x)},
        {"atom.min.s32", COMMUTING(i32, y < x ? y : x)},
        {"atom.min.u64", COMMUTING(u64, y < x ? y : x)},
        {"atom.min.s64", COMMUTING(i64, y < x ? y : x)},
        {"atom.max.u32", COMMUTING(u32, y > x ? y : x)},
        {"atom.max.s32", COMMUTING(i32, y > x ? y : x)},
        {"atom.max.u64", COMMUTING(u64, y > x ? y : x)},
        {"atom.max.s64", COMMUTING(i64, y > x ? y : x)},
        {"atom.add.f32", OTHER(f32, base::result(x + y, x, y))},
        {"atom.add.f64", OTHER(f64, base::result(x + y, x, y))},
        {"atom.add.f16", OTHER(u16, sum<base::Float16>(x, y))},
        {"atom.add.bf16", OTHER(u16, sum<base::Brain16>(x, y))},
        {"atom.add.f16x2", OTHER(u32, sums<base::Float16>(x, y))},
        {"atom.add.bf16x2", OTHER(u32, sums<base::Brain16>(x, y))},
        {"atom.inc.32", OTHER(u32, x >= y ? 0 : x + 1)},
        {"atom.dec.32", OTHER(u32, !x || x > y ? y : x - 1)},
        {"atom.exch.32", [](Block &b, const Op &o) { atomic<u32, false>(b, o, [](u32, u32 y, u32) { return y; }); }},
        {"atom.exch.64", [](Block &b, const Op &o) { atomic<u64, false>(b, o, [](u64, u64 y, u64) { return y; }); }},
        {"atom.cas.16", COMPARE(u16)},
        {"atom.cas.32", COMPARE(u32)},
        {"atom.cas.64", COMPARE(u64)},
    };
    return all;
}

} // namespace engine

using namespace engine;

// For each atomic on global memory, write two numbers: how many lanes used its most used address, and from how many
// blocks. -1 means that there were too many addresses to count; 0 means that no lane executed the atomic.
PUBLIC void cudabench_contention(Launch *launch, i64 *hottest) {
    for (size_t access = 0; access < launch->accesses.size(); access++) {
        const i32 number = launch->accesses[access].number[GLOBAL];
        if (launch->accesses[access].kind != ATOMIC || number < 0)
            continue;
        ByAddress<Atomics::Hits> total;
        bool full = false;
        i64 pairs = 0, most = 0, blocks = 0, address = 0;
        for (const auto &worker : launch->workers) {
            full |= worker->atomics.contentions[access].full;
            worker->atomics.contentions[access].at.each([&](const Atomics::Hits &entry) {
                Atomics::Hits &sum = total[entry.address];
                sum.hits += entry.hits;
                sum.blocks += entry.blocks;
                pairs += entry.blocks;
            });
        }
        total.each([&](const Atomics::Hits &entry) {
            if (entry.hits > most || (entry.hits == most && entry.address < address)) {
                most = entry.hits;
                blocks = entry.blocks;
                address = entry.address;
            }
        });
        full |= total.size() > MOST_KEPT;
        hottest[2 * number] = full ? -1 : most;
        hottest[2 * number + 1] = full || pairs > i64(MOST_KEPT) ? -1 : blocks;
    }
}
