#include "launch.hpp"

#include <algorithm>
#include <cmath>

namespace engine {

namespace {

constexpr i32 NARROW = 1, ONE = 2, SHOWS = 4; // flags: an address of 32 bits; adds the constant 1; order shows
constexpr i32 WORDS = 0, OF_LANES = 1, SWAP = 2, LOOP = 3; // Access::served
constexpr size_t MOST_KEPT = 1 << 21;                      // of cudabench/simulator/count/contention.py
constexpr int SLOT_BITS = 40;                              // of cudabench/simulator/memory.py, as the next
constexpr i64 SHARED_WINDOW = i64(1) << 37, LOCAL_WINDOW = i64(1) << 38, WINDOW = i64(1) << 32;

// What requests cost, see cudabench/simulator/count/atomics.py.
struct Price {
    i64 pieces = 0, ideal = 0, reloads = 0, turns = 0, waiting = 0;
};

int bank_of(i64 address, int width) { return int(width == 8 ? address >> 3 & 15 : address >> 2 & 31); }

// The lanes in the fullest bank.
i64 meeting(const i64 *addresses, u32 mask, int width) {
    i64 in[LANES] = {}, most = 0;
    for (u32 rest = mask; rest; rest &= rest - 1)
        most = std::max(most, ++in[bank_of(addresses[first_lane(rest)], width)]);
    return most;
}

// A loop of the machine code: all lanes load, and in each turn one lane of every bank may store.
Price looped(const i64 *addresses, u32 waiting, int width) {
    const int size = width == 8 ? 16 : LANES, shift = width == 8 ? 3 : 2;
    auto groups = [&](u32 lanes) { return size == LANES ? 1 : i64((lanes & 0xFFFFu) != 0) + (lanes >> 16 != 0); };
    Price price;
    price.ideal = 3 * groups(waiting);
    while (waiting) {
        price.reloads += wavefronts(addresses, waiting, width, true).pieces;
        price.turns++;
        price.waiting += lanes_of(waiting);
        price.pieces += 2 * groups(waiting);
        i64 stored[LANES]; // by bank: the word that was stored this turn
        std::fill_n(stored, LANES, i64(-1));
        u32 done = 0;
        for (int first = 0; first < LANES; first += size) {
            u32 served = 0; // banks
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
    price.pieces += price.reloads;
    return price;
}

Price shared_price(const i64 *addresses, u32 mask, int width, i32 served) {
    if (served == LOOP)
        return looped(addresses, mask, width);
    Price price;
    if (served == WORDS) {
        const Cost cost = wavefronts(addresses, mask, width, false);
        return {cost.pieces, cost.ideal};
    }
    for (u32 group : {width == 8 ? 0xFFFFu : ALL, width == 8 ? 0xFFFF0000u : 0u}) {
        const i64 most = meeting(addresses, mask & group, width);
        price.pieces += most;
        price.ideal += most > 0;
    }
    if (served == SWAP)
        price = {2 * price.pieces, 2 * price.ideal};
    return price;
}

// A sector is counted once for each lane of the word in it that most lanes go to.
Price global_price(const i64 *addresses, u32 mask, i64 size) {
    i64 places[LANES];
    int count = 0;
    u64 unlike = 0;
    const i64 one = addresses[first_lane(mask)];
    for (u32 rest = mask; rest; rest &= rest - 1) {
        places[count] = addresses[first_lane(rest)];
        unlike |= u64(places[count++] ^ one);
    }
    if (!unlike)
        return {count, (size + 31) / 32};
    std::sort(places, places + count);
    i64 pieces = 0, different = 0, most = 0;
    for (int place = 0; place < count;) {
        int end = place;
        while (end < count && places[end] == places[place])
            end++;
        different++;
        if (place && places[place] >> 5 != places[place - 1] >> 5) {
            pieces += most;
            most = 0;
        }
        most = std::max<i64>(most, end - place);
        place = end;
    }
    return {pieces + most, (different * size + 31) / 32};
}

void count(Block &block, const Request &request, const Price &price) {
    const bool by_one_lane = request.access.issued[request.space] != AS_IT_IS;
    const Cost cost = by_one_lane ? Cost{1, 1} : Cost{price.pieces, price.ideal};
    block.worker.counters.add(block, request, cost, by_one_lane ? 0 : price.reloads);
}

// Halves of 16 bits, computed wider and rounded once, as the NumPy engine has them.
f64 from_half(u32 bits) {
    const i32 exponent = i32(bits >> 10 & 31), mantissa = i32(bits & 0x3FF);
    const f64 size = exponent == 31  ? (mantissa ? NAN : INFINITY)
                     : exponent == 0 ? std::ldexp(mantissa, -24)
                                     : std::ldexp(1024 + mantissa, exponent - 25);
    return bits & 0x8000 ? -size : size;
}

u32 to_half(f64 x) {
    if (std::isnan(x))
        return 0x7FFF;
    const u32 sign = std::signbit(x) ? 0x8000 : 0;
    const f64 size = std::fabs(x);
    if (size >= 65520)
        return sign | 0x7C00;
    if (size < std::ldexp(1.0, -14))
        return sign | u32(std::nearbyint(std::ldexp(size, 24)));
    const int exponent = std::ilogb(size);
    return sign | (u32((exponent + 15) << 10) + u32(std::nearbyint(std::ldexp(size, 10 - exponent))) - 1024);
}

f64 from_bfloat(u32 bits) {
    const u32 word = bits << 16;
    f32 found;
    std::memcpy(&found, &word, 4);
    return found;
}

u32 to_bfloat(f64 x) {
    if (std::isnan(x))
        return 0x7FFF;
    f32 near = f32(x);
    u32 bits;
    std::memcpy(&bits, &near, 4);
    if (f64(near) != x && !(bits & 1) && std::isfinite(near)) // to odd, so that the next rounding is the only one
        bits += std::fabs(f64(near)) < std::fabs(x) ? 1 : u32(-1);
    return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

u32 add_half(u32 x, u32 y) { return to_half(from_half(x & 0xFFFF) + from_half(y & 0xFFFF)); }
u32 add_bfloat(u32 x, u32 y) { return to_bfloat(from_bfloat(x & 0xFFFF) + from_bfloat(y & 0xFFFF)); }

// One atomic instruction on elements of type T. COMMUTES: lanes may be combined before they reach memory, and blocks
// come in any order.
template <class T, bool COMMUTES, class F> struct Instruction {
    Block &block;
    const Op &op;
    const Access &access;
    F combine;

    T operand(int which, int lane) const { return op.from[which] < 0 ? T() : block.at<T>(op.from[which])[lane]; }

    void update(u8 *data, int lane) const {
        T old;
        std::memcpy(&old, data, sizeof old);
        const T changed = combine(old, operand(1, lane), operand(2, lane));
        std::memcpy(data, &changed, sizeof changed);
        if (access.returns)
            block.at<T>(op.into[0])[lane] = old;
    }

    // What other threads may change at the same time; nobody asks what lanes find there.
    static void update_together(u8 *data, T value, F combine) {
        T *place = reinterpret_cast<T *>(data);
        T old = __atomic_load_n(place, __ATOMIC_RELAXED);
        while (!__atomic_compare_exchange_n(place, &old, combine(old, value, T()), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        }
    }

    bool in_bounds(const i64 *addresses, u32 mask, i64 low, i64 end) const {
        i64 bits = 0, least = INT64_MAX, most = INT64_MIN;
        for (u32 rest = mask; rest; rest &= rest - 1) {
            const i64 address = addresses[first_lane(rest)];
            least = std::min(least, address);
            most = std::max(most, address);
            bits |= address;
        }
        if (least >= low && most + access.size <= end && !(bits & (access.size - 1)))
            return true;
        block.suspect("an atomic is out of bounds or misaligned", op);
        return false;
    }

    void on_shared(int warp, u32 mask, const i64 *addresses, i32 variable) const {
        const bool known = access.shared_low <= access.shared_high;
        if (!in_bounds(addresses, mask, known ? access.shared_low : 0, known ? access.shared_high : block.launch.about.shared_size))
            return;
        const bool by_one = (op.flags & ONE) && !access.returns && access.served == OF_LANES;
        const Request request{access, SHARED, variable, warp, mask, addresses};
        const Price price = shared_price(addresses, mask, access.size, by_one ? WORDS : access.served);
        count(block, request, price);
        if (access.issued[SHARED] == AS_IT_IS) {
            block.worker.atomics.loops[size_t(op.access)].turns += price.turns;
            block.worker.atomics.loops[size_t(op.access)].waiting += price.waiting;
        }
        block.worker.races.note(block, op, request, nullptr);
        for (u32 rest = mask; rest; rest &= rest - 1)
            update(block.shared + addresses[first_lane(rest)], warp * LANES + first_lane(rest));
    }

    // The lanes of one region.
    bool in_region(i64 slot, int warp, u32 mask, const i64 *addresses) const {
        Launch &launch = block.launch;
        if (slot <= 0 || slot >= i64(launch.regions.size())) {
            block.suspect("an atomic is out of bounds", op);
            return false;
        }
        const Region &region = launch.regions[size_t(slot)];
        if (!region.writable || region.heap) {
            block.suspect("an atomic on memory that is read-only, or allocated by the kernel", op);
            return false;
        }
        if (!in_bounds(addresses, mask, region.base, region.base + region.size))
            return false;
        const Request request{access, GLOBAL, i32(slot), warp, mask, addresses};
        if (region.watched)
            block.worker.races.note(block, op, request, nullptr);
        for (u32 rest = mask; rest; rest &= rest - 1) {
            const i64 start = addresses[first_lane(rest)] - region.base;
            launch.undo.keep(launch, i32(slot), start, start + access.size);
        }
        return true;
    }

    void on_global(int warp, u32 mask, const i64 *addresses, i64 execution) const {
        Launch &launch = block.launch;
        const i64 first = addresses[first_lane(mask)] >> SLOT_BITS;
        for (u32 rest = mask; rest;) {
            const i64 slot = addresses[first_lane(rest)] >> SLOT_BITS;
            u32 part = 0;
            for (u32 left = rest; left; left &= left - 1)
                part |= addresses[first_lane(left)] >> SLOT_BITS == slot ? left & -left : 0u;
            if (!in_region(slot, warp, part, addresses))
                return;
            rest &= ~part;
        }
        const Request request{access, GLOBAL, i32(first), warp, mask, addresses};
        block.worker.footprints.note(block, request, access.size);
        count(block, request, global_price(addresses, mask, access.size));
        Atomics &atomics = block.worker.atomics;
        atomics.contend(op.access, block.place, addresses, mask);
        const bool shows = access.returns || (op.flags & SHOWS);
        if (launch.about.ordered && launch.order.size() > 1 &&
            atomics.order(op, shows, block.place, addresses, mask, execution)) {
            block.suspect("blocks that run one after another leave something else than blocks in step", op);
            return;
        }
        auto data = [&](int lane) {
            const Region &region = launch.regions[size_t(addresses[lane] >> SLOT_BITS)];
            return region.data + (addresses[lane] - region.base);
        };
        if constexpr (COMMUTES)
            if (!access.returns) {
                const bool together = launch.workers.size() > 1;
                for (u32 rest = mask; rest;) {
                    // Neighbours at one address are combined first.
                    const i64 address = addresses[first_lane(rest)];
                    u8 *place = data(first_lane(rest));
                    T sum = operand(1, warp * LANES + first_lane(rest));
                    for (rest &= rest - 1; rest && addresses[first_lane(rest)] == address; rest &= rest - 1)
                        sum = combine(sum, operand(1, warp * LANES + first_lane(rest)), T());
                    if (together) {
                        update_together(place, sum, combine);
                        continue;
                    }
                    T old;
                    std::memcpy(&old, place, sizeof old);
                    old = combine(old, sum, T());
                    std::memcpy(place, &old, sizeof old);
                }
                return;
            }
        for (u32 rest = mask; rest; rest &= rest - 1)
            update(data(first_lane(rest)), warp * LANES + first_lane(rest));
    }

    static void fill(i64 *addresses, u32 mask) {
        const i64 active = addresses[first_lane(mask)];
        for (int lane = 0; lane < LANES; lane++)
            addresses[lane] = mask >> lane & 1 ? addresses[lane] : active;
    }

    // To be replaced by what resolves the addresses of loads and stores.
    void run() const {
        const i64 execution = block.worker.atomics.next_execution(op.access);
        const auto &starts = block.launch.shared_starts;
        i32 variable = -1;
        for (int warp = 0; warp < block.warps && !block.launch.suspected; warp++) {
            const u32 mask = block.mask[warp];
            if (!mask)
                continue;
            i64 addresses[LANES];
            const int active = first_lane(mask);
            for (int lane = 0; lane < LANES; lane++) {
                const int own = warp * LANES + (mask >> lane & 1 ? lane : active);
                addresses[lane] = op.immediate + (op.flags & NARROW ? i64(block.at<i32>(op.from[0])[own]) : block.at<i64>(op.from[0])[own]);
            }
            u32 shared = access.space == SHARED ? mask : 0u;
            if (access.space == GENERIC)
                for (int lane = 0; lane < LANES; lane++) {
                    auto inside = [&](i64 window) { return addresses[lane] >= window - WINDOW / 2 && addresses[lane] < window + WINDOW; };
                    if (inside(LOCAL_WINDOW)) {
                        block.suspect("an atomic on local memory", op);
                        return;
                    }
                    if (inside(SHARED_WINDOW)) {
                        shared |= 1u << lane & mask;
                        addresses[lane] -= SHARED_WINDOW;
                    }
                }
            if (shared) {
                // The NumPy engine counts an execution on the variable of its first lane.
                if (variable < 0)
                    variable = i32(std::max<i64>(0, std::upper_bound(starts.begin(), starts.end(), addresses[first_lane(shared)]) - starts.begin() - 1));
                i64 places[LANES];
                std::copy_n(addresses, LANES, places);
                fill(places, shared);
                on_shared(warp, shared, places, variable);
            }
            if (const u32 global = mask & ~shared) {
                if (shared)
                    fill(addresses, global);
                on_global(warp, global, addresses, execution);
            }
        }
    }
};

template <class T, bool COMMUTES, class F> void atomic(Block &block, const Op &op, F combine) {
    Instruction<T, COMMUTES, F>{block, op, block.launch.accesses[size_t(op.access)], combine}.run();
}

#define COMMUTING(T, E) [](Block &b, const Op &o) { atomic<T, true>(b, o, [](T x, T y, T) { return T(E); }); }
#define OTHER(T, E) [](Block &b, const Op &o) { atomic<T, false>(b, o, [](T x, T y, T) { return T(E); }); }
#define COMPARE(T) [](Block &b, const Op &o) { atomic<T, false>(b, o, [](T x, T y, T z) { return x == y ? z : x; }); }

} // namespace

Atomics::Atomics(const Launch &launch)
    : met(launch.accesses.size()), loops(launch.accesses.size(), Loop{}), executions(launch.accesses.size()) {}

void Atomics::start() { std::fill(executions.begin(), executions.end(), 0); }

void Atomics::contend(i32 access, i64 place, const i64 *addresses, u32 mask) {
    Met &of = met[size_t(access)];
    if (of.full)
        return;
    for (u32 rest = mask; rest;) {
        const i64 address = addresses[first_lane(rest)];
        i64 hits = 0;
        for (; rest && addresses[first_lane(rest)] == address; rest &= rest - 1)
            hits++;
        Hits &at = of.at[address];
        at.blocks += !at.hits || at.last != place;
        at.hits += hits;
        at.last = place;
    }
    if (of.at.size() > MOST_KEPT) {
        of.full = true;
        of.at.clear();
    }
}

bool Atomics::order(const Op &op, bool shows, i64 place, const i64 *addresses, u32 mask, i64 execution) {
    bool wrong = false;
    for (u32 rest = mask; rest;) {
        const i64 address = addresses[first_lane(rest)];
        while (rest && addresses[first_lane(rest)] == address)
            rest &= rest - 1;
        First &at = first[address];
        if (!at.code) {
            at.place = place;
            at.execution = execution;
            at.access = op.access;
            at.code = op.code + 1;
        }
        at.shows |= shows;
        at.several |= at.place != place;
        at.again |= at.execution != execution || at.access != op.access;
        at.unlike |= at.code != op.code + 1;
        wrong |= at.several && at.again && (at.shows || at.unlike);
    }
    return wrong;
}

const std::vector<Operation> &atomic_operations() {
    static const std::vector<Operation> all = {
        {"atom.add.32", COMMUTING(u32, x + y)},
        {"atom.add.64", COMMUTING(u64, x + y)},
        {"atom.and.32", COMMUTING(u32, x &y)},
        {"atom.and.64", COMMUTING(u64, x &y)},
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
        {"atom.add.f32", OTHER(f32, x + y)},
        {"atom.add.f64", OTHER(f64, x + y)},
        {"atom.add.f16", OTHER(u16, add_half(x, y))},
        {"atom.add.bf16", OTHER(u16, add_bfloat(x, y))},
        {"atom.add.f16x2", OTHER(u32, add_half(x, y) | add_half(x >> 16, y >> 16) << 16)},
        {"atom.add.bf16x2", OTHER(u32, add_bfloat(x, y) | add_bfloat(x >> 16, y >> 16) << 16)},
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

// By the number of an atomic on global memory: the hits of the address that it uses most and from how many blocks; -1
// where there were too many to tell; 0 hits where no lane came.
PUBLIC void cudabench_contention(Launch *launch, i64 *hottest) {
    for (size_t access = 0; access < launch->accesses.size(); access++) {
        const i32 number = launch->accesses[access].number[GLOBAL];
        if (launch->accesses[access].kind != ATOMIC || number < 0)
            continue;
        ByAddress<Atomics::Hits> total;
        bool full = false;
        i64 pairs = 0, most = 0, blocks = 0, at = 0;
        for (const auto &worker : launch->workers) {
            full |= worker->atomics.met[access].full;
            worker->atomics.met[access].at.each([&](const Atomics::Hits &more) {
                Atomics::Hits &sum = total[more.address];
                sum.hits += more.hits;
                sum.blocks += more.blocks;
                pairs += more.blocks;
            });
        }
        total.each([&](const Atomics::Hits &one) {
            if (one.hits > most || (one.hits == most && one.address < at)) {
                most = one.hits;
                blocks = one.blocks;
                at = one.address;
            }
        });
        full |= total.size() > MOST_KEPT;
        hottest[2 * number] = full ? -1 : most;
        hottest[2 * number + 1] = full || pairs > i64(MOST_KEPT) ? -1 : blocks;
    }
}

// By access: turns of atomics that are loops, and lanes that wait in them.
PUBLIC void cudabench_turns(Launch *launch, i64 *turns) {
    for (const auto &worker : launch->workers)
        for (size_t access = 0; access < launch->accesses.size(); access++) {
            turns[2 * access] += worker->atomics.loops[access].turns;
            turns[2 * access + 1] += worker->atomics.loops[access].waiting;
        }
}
