// Cells, in which races.cpp and races_simd.cpp record the last accesses to a granule (a few bytes) of memory.
#pragma once

#include "engine.hpp"

namespace engine {
namespace cell {

// The bits of a cell, from the lowest on: the lowest thread (10 bits), the highest thread (10), flags (6), the time.
constexpr int TIME_BITS = 26;
constexpr u64 TICK = u64(1) << TIME_BITS, THREAD = 1023, WHO = (u64(1) << 20) - 1;
constexpr u64 LAST_START = u64(1) << 62; // no block begins at a later time, so that its time cannot overflow
constexpr u64 flag(int number) { return u64(1) << (20 + number); }
// Flags of a store. UNIFORM: all lanes store the same constant. VARIED: the block stored several values. OTHERS: other
// blocks stored the same before. HIDES: since the last barrier its thread, or one that is synchronized with it, had
// stored another value.
constexpr u64 UNIFORM = flag(0), VARIED = flag(1), OTHERS = flag(2), HIDES = flag(3);
// Flags of reads and of atomic updates: since the last barrier (READ, UPDATED); by this block (OWN_...); by other
// blocks (OTHERS_...).
constexpr u64 READ = flag(0), UPDATED = flag(1), OWN_READ = flag(2), OWN_UPDATED = flag(3), OTHERS_READ = flag(4),
              OTHERS_UPDATED = flag(5);

// Return the value of a granule as `Cells::value` keeps it: its bytes, or a hash of them if there are 8.
inline u32 value_of(const u8 *data, int granule) {
    u64 value = 0;
    std::memcpy(&value, data, size_t(granule));
    return granule <= 4 ? u32(value) : u32(value ^ (value >> 32) * 0x9E3779B1u);
}

} // namespace cell

// The cells of consecutive granules; value: the last stored value, or a hash of more than 4 bytes.
struct Cells {
    u64 *stored, *used;
    u32 *value;
};

struct Times {
    u64 now, began, met; // the times of the current event, of the block's start, of the last barrier
};

// Consecutive granules that the lanes of a warp access; each lane accesses 2^each of them. low: the first thread;
// looks: whether blocks are compared; uniform: whether all lanes store the same constant; meets: whether lanes of the
// warp synchronized since the last barrier.
struct Row {
    i64 count;
    i64 low;
    int each, granule;
    bool global, looks, uniform, meets;
};

// steps: return the lanes whose next lane has an address that is `step` bytes higher. load, store: record the granules
// of a row from the first on, as long as they are simple cases; return how many were recorded.
struct RowLoops {
    u32 (*steps)(const i64 *addresses, i64 step);
    i64 (*load)(const Cells &, const Row &, const Times &);
    i64 (*store)(const Cells &, const Row &, const Times &, const u8 *data);
};

} // namespace engine
