// The cells of granules, in which races.cpp and races_simd.cpp record the last accesses.
#pragma once

#include "engine.hpp"

namespace engine {
namespace cell {

// A cell, from its lowest bit on: the lowest and the highest thread (10 bits each), flags (6), the time.
constexpr int TIME_BITS = 26;
constexpr u64 TICK = u64(1) << TIME_BITS, THREAD = 1023, WHO = (u64(1) << 20) - 1;
constexpr u64 LAST_START = u64(1) << 62; // no block begins later, so that its time cannot overflow
constexpr u64 flag(int number) { return u64(1) << (20 + number); }
// Of a store: all lanes store one constant; the block stored several values; other blocks stored the same before; since
// the last barrier its thread, or one synchronized with it, had stored another value.
constexpr u64 UNIFORM = flag(0), VARIED = flag(1), OTHERS = flag(2), HIDES = flag(3);
// Of reads and atomics: since the last barrier; by the block; by other blocks.
constexpr u64 READ = flag(0), UPDATED = flag(1), OWN_READ = flag(2), OWN_UPDATED = flag(3), OTHERS_READ = flag(4),
              OTHERS_UPDATED = flag(5);

// The value of a granule that a cell keeps, or a hash of 8 bytes.
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
    u64 now, began, met; // of the current event, of the block's start, of the last barrier
};

// Consecutive granules that lanes access, 2^each of a lane. low: the first thread; looks: whether blocks are compared;
// uniform: all lanes store one constant; meets: whether lanes of the warp synchronized since the last barrier.
struct Row {
    i64 count;
    i64 low;
    int each, granule;
    bool global, looks, uniform, meets;
};

// steps: the lanes whose next lane's address is `step` bytes further. load, store: record the first granules of a row
// as long as these are simple; return their number.
struct RowLoops {
    u32 (*steps)(const i64 *addresses, i64 step);
    i64 (*load)(const Cells &, const Row &, const Times &);
    i64 (*store)(const Cells &, const Row &, const Times &, const u8 *data);
};

} // namespace engine
