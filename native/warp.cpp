// Warp-wide instructions: shuffles, votes, matches, reductions, warp barriers.
#include "launch.hpp"

namespace engine {

namespace {

constexpr i32 GROUP = 1, ALIKE = 2, INVERTED = 2; // flags of Op; ALIKE: operands b and c of a shuffle are constants

// The masks that the lanes of a warp give to a warp-wide instruction. same: whether all lanes give one mask, `first`.
struct MemberMasks {
    bool same;
    u32 first;
    const u32 *lanes; // the masks of the 32 lanes; nullptr if all lanes name the whole warp
    u32 of(int lane) const { return same ? first : lanes[lane]; }
};

MemberMasks member_masks(const Block &block, i32 members, int warp, u32 mask) {
    if (members < 0)
        return {true, ALL, nullptr};
    const u32 *lanes = block.at<u32>(members) + warp * LANES;
    const u32 first = lanes[first_lane(mask)];
    u32 differences = 0;
    for (int lane = 0; lane < LANES; lane++)
        differences |= (mask >> lane & 1) ? lanes[lane] ^ first : 0;
    return {differences == 0, first, lanes};
}

// Check for the errors that the NumPy engine's `members.check_masks` reports, and synchronize the lanes. warp_barrier:
// whether the instruction is __syncwarp. Its mask may name lanes that have ended, because it waits only for the others;
// the mask of a cooperative group's barrier must not name ended lanes.
bool synchronize(Block &block, const Op &op, const MemberMasks &named, int warp, u32 mask, bool warp_barrier) {
    u32 outside = 0, all = 0;
    if (named.same) {
        outside = mask & ~named.first;
        all = named.first;
    } else
        for (u32 rest = mask; rest; rest &= rest - 1) {
            const int lane = first_lane(rest);
            outside |= ~named.lanes[lane] & (rest & -rest);
            all |= named.lanes[lane];
        }
    if (outside) {
        block.suspect("a lane is not in its own mask", op);
        return false;
    }
    if ((all & block.exited[warp]) && !(warp_barrier && !(op.flags & GROUP))) {
        block.suspect("a mask names a lane that has ended", op);
        return false;
    }
    if (named.same) {
        block.worker.races.synchronize(block, warp, mask);
        return true;
    }
    for (u32 rest = mask; rest;) {
        const u32 members = named.lanes[first_lane(rest)];
        u32 alike = 0;
        for (u32 left = rest; left; left &= left - 1)
            if (named.lanes[first_lane(left)] == members)
                alike |= left & -left;
        block.worker.races.synchronize(block, warp, alike);
        rest &= ~alike;
    }
    return true;
}

// Synchronize the lanes of each warp that has an active lane, and then call `work` for this warp. members: the register
// with the masks of the lanes.
template <class F> inline void each_warp(Block &block, const Op &op, i32 members, F work, bool warp_barrier = false) {
    for (int warp = 0; warp < block.warps; warp++) {
        const u32 mask = block.mask[warp];
        if (!mask)
            continue;
        const MemberMasks named = member_masks(block, members, warp, mask);
        if (!synchronize(block, op, named, warp, mask, warp_barrier))
            return;
        work(warp, mask, named);
    }
}

template <class T> inline void put(T *into, u32 mask, const T *values) {
    for (int lane = 0; lane < LANES; lane++)
        into[lane] = mask >> lane & 1 ? values[lane] : into[lane];
}

inline void put_bits(u32 &into, u32 mask, u32 bits) { into = (into & ~mask) | (bits & mask); }

enum Mode { UP, DOWN, BUTTERFLY, INDEX };

// For each lane, set the lane from which it reads; if the wanted lane is outside of the segment, this is the lane
// itself. Return the mask of the lanes whose wanted lane is inside.
template <Mode MODE> u32 source_lanes(const u32 *b, const u32 *c, i32 *sources) {
    u32 valid = 0;
    for (i32 lane = 0; lane < LANES; lane++) {
        const i32 segment = i32(c[lane] >> 8 & 31), bound = i32(c[lane] & 31), by = i32(b[lane] & 31);
        const i32 high = (lane & segment) | (bound & ~segment);
        const i32 wanted = MODE == UP          ? lane - by
                           : MODE == DOWN      ? lane + by
                           : MODE == BUTTERFLY ? lane ^ by
                                               : (lane & segment) | (by & ~segment);
        const bool inside = MODE == UP ? wanted >= high : wanted <= high;
        sources[lane] = inside ? wanted & 31 : lane;
        valid |= u32(inside) << lane;
    }
    return valid;
}

// shfl. from[]: the value, b, c, and the mask (or -1). into[]: the value that was read, and the predicate (or -1) that
// says whether the source lane is in the segment.
template <Mode MODE> void shuffle(Block &block, const Op &op) {
    const u32 *value = block.at<u32>(op.from[0]), *b = block.at<u32>(op.from[1]), *c = block.at<u32>(op.from[2]);
    u32 *into = block.at<u32>(op.into[0]), *valid_into = op.into[1] < 0 ? nullptr : block.predicate(op.into[1]);
    i32 sources[LANES];
    u32 valid = 0;
    bool known = false;
    each_warp(block, op, op.from[3], [&](int warp, u32 mask, const MemberMasks &named) {
        const int first = warp * LANES;
        if (!known)
            valid = source_lanes<MODE>(b + first, c + first, sources);
        known = op.flags & ALIKE;
        if (mask != ALL || !named.same || named.first != ALL)
            for (u32 rest = mask; rest; rest &= rest - 1) {
                const int lane = first_lane(rest);
                if (sources[lane] != lane && !(mask & named.of(lane) & 1u << sources[lane])) {
                    block.suspect("a shuffle from a lane that does not take part", op);
                    return;
                }
            }
        u32 values[LANES];
        for (int lane = 0; lane < LANES; lane++)
            values[lane] = value[first + sources[lane]];
        if (mask == ALL)
            std::memcpy(into + first, values, sizeof values);
        else
            put(into + first, mask, values);
        if (valid_into)
            put_bits(valid_into[warp], mask, valid);
    });
}

enum Vote { EVERY, ANY, UNIFORM, BALLOT };

// vote. from[]: the predicate, and the mask (or -1). flags: whether the predicate is inverted.
template <Vote VOTE> void vote(Block &block, const Op &op) {
    const u32 *value = block.predicate(op.from[0]);
    each_warp(block, op, op.from[1], [&](int warp, u32 mask, const MemberMasks &named) {
        const u32 bits = op.flags & INVERTED ? ~value[warp] : value[warp];
        const u32 yes = bits & mask, no = ~bits & mask;
        if (VOTE == BALLOT) {
            u32 *into = block.at<u32>(op.into[0]) + warp * LANES, results[LANES];
            for (int lane = 0; lane < LANES; lane++)
                results[lane] = yes & named.of(lane);
            put(into, mask, results);
            return;
        }
        auto holds = [&](u32 lanes) {
            return VOTE == ANY ? (yes & lanes) != 0 : !(no & lanes) || (VOTE == UNIFORM && !(yes & lanes));
        };
        u32 results = named.same ? (holds(named.first) ? ALL : 0u) : 0u;
        for (u32 rest = named.same ? 0u : mask; rest; rest &= rest - 1)
            results |= holds(named.of(first_lane(rest))) ? rest & -rest : 0u;
        put_bits(block.predicate(op.into[0])[warp], mask, results);
    });
}

// match. from[]: the value and the mask. into[]: the lanes with the same value, and the predicate (or -1) that says
// whether all lanes have it.
template <class T, bool ALL_MEMBERS> void match(Block &block, const Op &op) {
    const T *value = block.at<T>(op.from[0]);
    each_warp(block, op, op.from[1], [&](int warp, u32 mask, const MemberMasks &named) {
        const T *warp_values = value + warp * LANES;
        u32 matches[LANES] = {}, complete = 0;
        for (u32 rest = mask; rest; rest &= rest - 1) {
            const int lane = first_lane(rest);
            const u32 inside = named.of(lane) & mask;
            u32 same = 0;
            for (int other = 0; other < LANES; other++)
                same |= u32(warp_values[other] == warp_values[lane]) << other;
            same &= inside;
            complete |= same == inside ? rest & -rest : 0u;
            matches[lane] = !ALL_MEMBERS || same == inside ? same : 0u;
        }
        put(block.at<u32>(op.into[0]) + warp * LANES, mask, matches);
        if (op.into[1] >= 0)
            put_bits(block.predicate(op.into[1])[warp], mask, complete);
    });
}

// redux. from[]: the value and the mask.
template <class T, class F> void reduce(Block &block, const Op &op, T neutral, F combine) {
    const T *value = block.at<T>(op.from[0]);
    each_warp(block, op, op.from[1], [&](int warp, u32 mask, const MemberMasks &named) {
        const T *warp_values = value + warp * LANES;
        auto total = [&](u32 lanes) {
            T sum = neutral;
            for (u32 rest = lanes & mask; rest; rest &= rest - 1)
                sum = combine(sum, warp_values[first_lane(rest)]);
            return sum;
        };
        T results[LANES];
        // If all active lanes give the same mask, this mask contains all of them, so one total is enough.
        const T whole = named.same ? total(mask) : neutral;
        for (int lane = 0; lane < LANES; lane++)
            results[lane] = named.same || !(mask >> lane & 1) ? whole : total(named.of(lane));
        put(block.at<T>(op.into[0]) + warp * LANES, mask, results);
    });
}

#define REDUX(T, NEUTRAL, E) [](Block &b, const Op &o) { reduce<T>(b, o, T(NEUTRAL), [](T x, T y) { return T(E); }); }

void active_mask(Block &block, const Op &op) {
    u32 *into = block.at<u32>(op.into[0]);
    for (int warp = 0; warp < block.warps; warp++)
        for (u32 rest = block.mask[warp]; rest; rest &= rest - 1)
            into[warp * LANES + first_lane(rest)] = block.mask[warp];
}

// elect: choose the lowest active lane. from[0]: the mask.
void elect(Block &block, const Op &op) {
    each_warp(block, op, op.from[0], [&](int warp, u32 mask, const MemberMasks &) {
        u32 *into = block.at<u32>(op.into[0]) + warp * LANES;
        for (u32 rest = mask; rest; rest &= rest - 1)
            into[first_lane(rest)] = u32(first_lane(mask));
        put_bits(block.predicate(op.into[1])[warp], mask, mask & -mask);
    });
}

void warp_barrier(Block &block, const Op &op) {
    each_warp(block, op, op.from[0], [](int, u32, const MemberMasks &) {}, true);
}

} // namespace

const std::vector<Operation> &warp_operations() {
    static const std::vector<Operation> all = {
        {"shfl.up", shuffle<UP>},
        {"shfl.down", shuffle<DOWN>},
        {"shfl.bfly", shuffle<BUTTERFLY>},
        {"shfl.idx", shuffle<INDEX>},
        {"vote.all", vote<EVERY>},
        {"vote.any", vote<ANY>},
        {"vote.uni", vote<UNIFORM>},
        {"vote.ballot", vote<BALLOT>},
        {"match.any.32", match<u32, false>},
        {"match.any.64", match<u64, false>},
        {"match.all.32", match<u32, true>},
        {"match.all.64", match<u64, true>},
        {"redux.add", REDUX(u32, 0, x + y)},
        {"redux.and", REDUX(u32, ALL, x & y)},
        {"redux.or", REDUX(u32, 0, x | y)},
        {"redux.xor", REDUX(u32, 0, x ^ y)},
        {"redux.min.u32", REDUX(u32, ALL, y < x ? y : x)},
        {"redux.max.u32", REDUX(u32, 0, y > x ? y : x)},
        {"redux.min.s32", REDUX(i32, INT32_MAX, y < x ? y : x)},
        {"redux.max.s32", REDUX(i32, INT32_MIN, y > x ? y : x)},
        {"activemask", active_mask},
        {"elect", elect},
        {"bar.warp.sync", warp_barrier},
    };
    return all;
}

} // namespace engine
