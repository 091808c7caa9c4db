// Detects races of requests to consecutive granules, several granules at a time. This file handles only the common
// cases; races.cpp handles all others.
#include "cells.hpp"

namespace engine {
namespace LEVEL {

const RowLoops &row_loops();

namespace {

using namespace cell;

#ifdef __AVX2__
constexpr int BYTES = 32;
#else
constexpr int BYTES = 16;
#endif
constexpr i64 WIDE = BYTES / 8;
// The numbers are signed, because comparing signed numbers takes one instruction. Times are too small to reach the sign
// bit.
typedef i64 Pack __attribute__((vector_size(BYTES)));
typedef i64 Loose __attribute__((vector_size(BYTES), aligned(8), may_alias));

inline Pack all(u64 value) { return Pack{} + i64(value); }
inline Pack at(const u64 *cells) { return *reinterpret_cast<const Loose *>(cells); }
inline Pack pick(Pack mask, Pack yes, Pack no) { return (mask & yes) | (~mask & no); }
inline bool any(Pack mask) {
    i64 bits = 0;
    for (int place = 0; place < WIDE; place++)
        bits |= mask[place];
    return bits != 0;
}

// For each granule, return the thread that accesses it. Each thread accesses 2^each granules.
inline Pack parties(const Row &row, i64 first) {
    Pack places{};
    for (int place = 0; place < WIDE; place++)
        places[place] = first + place;
    return ((places >> i64(row.each)) + row.low) * i64(THREAD + 2);
}

u32 steps(const i64 *addresses, i64 step) {
    u64 lanes = 0;
    for (int lane = 0; lane < LANES - 1; lane++)
        lanes |= u64(addresses[lane + 1] - addresses[lane] == step) << lane;
    return u32(lanes);
}

i64 load(const Cells &cells, const Row &row, const Times &times) {
    const Pack block_start = all(times.block_start), last_barrier = all(times.last_barrier), none{};
    const Pack least = row.global && !row.between_blocks ? none : block_start;
    i64 place = 0;
    for (; place + WIDE <= row.count; place += WIDE) {
        const Pack stored = at(cells.stored + place), used = at(cells.used + place), self = parties(row, place);
        Pack fine = (stored >= least) & (stored < last_barrier);
        fine |= ((stored & i64(WHO | OTHERS)) == self) & (stored >= block_start);
        if (row.global)
            fine |= stored == none;
        const Pack inside = used >= last_barrier;
        Pack odd = inside & ((used & i64(UPDATED)) != none);
        if (row.global && row.between_blocks) {
            odd |= (stored & i64(OTHERS)) != none;
            odd |= ((used & i64(OTHERS_READ | OTHERS_UPDATED)) != none) | ((used != none) & (used < block_start));
        }
        if (row.synchronized)
            odd |= inside & ((used & i64(WHO)) != self);
        if (any(~fine | odd))
            break;
        const Pack low = self & i64(THREAD), high = self & i64(THREAD << 10);
        const Pack low_before = used & i64(THREAD), high_before = used & i64(THREAD << 10);
        const Pack lower = pick(inside & (low_before < low), low_before, low);
        const Pack higher = pick(inside & (high_before > high), high_before, high);
        const Pack kept = (used >= block_start) & (used & i64(OWN_UPDATED));
        *reinterpret_cast<Loose *>(cells.used + place) = i64(times.now | READ | OWN_READ) | kept | lower | higher;
    }
    return place;
}

i64 store(const Cells &cells, const Row &row, const Times &times, const u8 *data) {
    const Pack last_barrier = all(times.last_barrier), none{};
    const bool between = row.global && row.between_blocks;
    i64 place = 0;
    for (; place + WIDE <= row.count; place += WIDE) {
        const Pack stored = at(cells.stored + place), used = at(cells.used + place), self = parties(row, place);
        Pack odd;
        if (between) // a granule is simple if there was no access before, or if only this thread has read it
            odd = (stored != none) | ((used != none) & ((used < i64(times.block_start)) | ((used & i64(WHO)) != self) |
                                                        ((used & i64(OTHERS_READ | OTHERS_UPDATED)) != none)));
        else
            odd = ((stored >= last_barrier) & ((stored & i64(WHO)) != self)) |
                  ((used >= last_barrier) & ((used & i64(WHO)) != self));
        if (row.uniform)
            odd |= stored >= last_barrier;
        if (any(odd))
            break;
        const Pack hides = (stored >= last_barrier) & i64(HIDES);
        *reinterpret_cast<Loose *>(cells.stored + place) = i64(times.now | (row.uniform ? UNIFORM : 0)) | hides | self;
        if (row.granule == 4)
            std::memcpy(cells.value + place, data + 4 * place, 4 * WIDE);
        else
            for (i64 k = place; k < place + WIDE; k++)
                cells.value[k] = value_of(data + k * row.granule, row.granule);
    }
    return place;
}

} // namespace

const RowLoops &row_loops() {
    static const RowLoops loops{steps, load, store};
    return loops;
}

} // namespace LEVEL
} // namespace engine
