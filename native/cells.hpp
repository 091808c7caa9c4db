// Cells: the records that races.cpp and races_simd.cpp keep about the last accesses to each granule (a few bytes) of
// memory.
#pragma once

#include "engine.hpp"

namespace engine {
namespace cell {

// The fields of a cell, from the lowest bit on: the lowest thread (10 bits), the highest thread (10 bits), flags (6
// bits), and the time (the remaining bits).
constexpr int TIME_BITS = 26;
constexpr u64 TICK = u64(1) << TIME_BITS, THREAD = 1023, WHO = (u64(1) << 20) - 1;
constexpr u64 LAST_START = u64(1) << 62; // no block begins at a later time than this, so its times cannot overflow
constexpr u64 flag(int number) { return u64(1) << (20 + number); }
// Flags of a store. UNIFORM: all lanes store the same constant. VARIED: the block stored several different values.
// OTHERS: other blocks stored to this granule before. HIDES: this store replaced another value; the value had been
// stored since the last barrier by the same thread, or by a thread that had synchronized with it.
constexpr u64 UNIFORM = flag(0), VARIED = flag(1), OTHERS = flag(2), HIDES = flag(3);
// Flags of reads and of atomic updates. READ, UPDATED: since the last barrier. OWN_...: by this block. OTHERS_...: by
// other blocks.
constexpr u64 READ = flag(0), UPDATED = flag(1), OWN_READ = flag(2), OWN_UPDATED = flag(3), OTHERS_READ = flag(4),
              OTHERS_UPDATED = flag(5);

// Return the value of a granule in the form that `Cells::value` stores: the bytes themselves, or a hash if there are 8.
inline u32 value_of(const u8 *data, int granule) {
    u64 value = 0;
    std::memcpy(&value, data, size_t(granule));
    return granule <= 4 ? u32(value) : u32(value ^ (value >> 32) * 0x9E3779B1u);
}

} // namespace cell

// The cells of consecutive granules. value: the value that was stored last; if it has more than 4 bytes, its hash.
struct Cells {
    u64 *stored, *used;
    u32 *value;
};

struct Times {
    u64 now, block_start,
        last_barrier; // the times of the current event, of the start of the block, and of the last barrier
};

// Consecutive granules that the lanes of a warp access. each: one lane accesses 2^each granules; low: the first thread;
// between_blocks: whether races between blocks are detected; uniform: whether all lanes store the same constant;
// synchronized: whether some lanes of the warp have synchronized since the last barrier.
struct Row {
    i64 count;
    i64 low;
    int each, granule;
    bool global, between_blocks, uniform, synchronized;
};

// Functions for vector code. steps: return the lanes whose next lane has an address that is `step` bytes higher. load,
// store: record the granules of a row, from the first on, until one is not a simple case; return how many were
// recorded.
struct RowLoops {
    u32 (*steps)(const i64 *addresses, i64 step);
    i64 (*load)(const Cells &, const Row &, const Times &);
    i64 (*store)(const Cells &, const Row &, const Times &, const u8 *data);
};

} // namespace engine
