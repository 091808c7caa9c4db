// The cells of granules, in which races.cpp and races_simd.cpp note who was there last.
#pragma once

#include "engine.hpp"

namespace engine {
namespace cell {

// A cell, from its lowest bit on: the lowest thread, the highest one (10 bits each), flags (6), the time.
constexpr int TIME_BITS = 26;
constexpr u64 TICK = u64(1) << TIME_BITS, THREAD = 1023, WHO = (u64(1) << 20) - 1;
constexpr u64 LAST_START = u64(1) << 62; // no block begins later, so that its time cannot overflow
constexpr u64 flag(int number) { return u64(1) << (20 + number); }
// Of a store: of what all lanes have alike; the block stored several values; other blocks stored the same before; since
// the last barrier its thread, or one that it met, had stored otherwise there.
constexpr u64 UNIFORM = flag(0), VARIED = flag(1), OTHERS = flag(2), HIDES = flag(3);
// Of reads and atomics: since the last barrier; by the block; by other blocks.
constexpr u64 READ = flag(0), UPDATED = flag(1), OWN_READ = flag(2), OWN_UPDATED = flag(3), OTHERS_READ = flag(4),
              OTHERS_UPDATED = flag(5);

// What is kept of the value of a granule: all of it, or a hash of 8 bytes.
inline u32 value_of(const u8 *data, int granule) {
    u64 value = 0;
    std::memcpy(&value, data, size_t(granule));
    return granule <= 4 ? u32(value) : u32(value ^ (value >> 32) * 0x9E3779B1u);
}

} // namespace cell

// The cells of some granules in a row; value: what was stored last, or a hash of more than 4 bytes.
struct Cells {
    u64 *stored, *used;
    u32 *value;
};

struct Times {
    u64 now, began, met; // of the event in hand, of the block's start, of the last barrier
};

// Granules that lanes go to in a row, 2^each of a lane. low: the thread of the first; looks: whether blocks are
// compared; uniform: of a store of what all lanes have alike; meets: whether some of the warp have met since the last
// barrier.
struct Row {
    i64 count;
    i64 low;
    int each, granule;
    bool global, looks, uniform, meets;
};

// steps: the lanes of which the next one's address is so much further. Else: note the first granules of a row as far as
// that is simple; return how many.
struct RowLoops {
    u32 (*steps)(const i64 *addresses, i64 step);
    i64 (*load)(const Cells &, const Row &, const Times &);
    i64 (*store)(const Cells &, const Row &, const Times &, const u8 *data);
};

} // namespace engine
