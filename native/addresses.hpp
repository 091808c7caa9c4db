// Where the lanes of a warp go, and what moves their data.
#pragma once

#include "launch.hpp"

#include <algorithm>

namespace engine {

// The map of the address space is that of cudabench/simulator/memory.py.
constexpr i64 PARAMETER_WINDOW = i64(1) << 36, SHARED_WINDOW = i64(1) << 37, LOCAL_WINDOW = i64(1) << 38;
constexpr i64 WINDOW = i64(1) << 32, WIDEST = 32; // bytes; the latter of a lane
constexpr i32 SHORT_ADDRESS = 1;                  // a flag: an address of 32 bits

// Which form lanes have, wherever they begin.
struct Form {
    const i64 *places; // 32
    u32 mask;
    u32 rows; // bits: which eights of lanes are all active and have this stride
    i64 stride;
};
constexpr int ROW = 8;
constexpr u32 ROWS = 15, IN_ROW = 255; // all four; lanes of one

// The addresses of a warp's active lanes; the inactive ones have that of the first active one.
struct Lanes {
    i64 addresses[LANES];
    u32 mask;
    bool straight; // a full warp of one stride
    i64 stride;
    i64 low, high, bits; // the least and the greatest address, and all of their lowest bits

    template <class A> void fill(const A *base, i64 offset, u32 active) {
        mask = active;
        for (int lane = 0; lane < LANES; lane++)
            addresses[lane] = i64(u64(i64(base[lane])) + u64(offset)); // any bits: sums wrap
        settle();
    }
    // Take some lanes of others.
    void part(const Lanes &all, u32 active, i64 window) { fill(all.addresses, i64(-u64(window)), active); }
    bool within(i64 from, i64 to, i64 size) const { return low >= from && high <= to - size && !(bits & (size - 1)); }
    Form form() const { return {addresses, mask, straight ? ROWS : 0, stride}; }

  private:
    void settle() {
        const i64 first = addresses[first_lane(mask)];
        const u64 step = u64(addresses[1]) - u64(first);
        u64 others = u64(mask) ^ ALL, expected = u64(first);
        low = high = bits = first;
        for (int lane = 0; lane < LANES; lane++, expected += step) {
            const i64 on = -i64(mask >> lane & 1);
            const i64 address = addresses[lane] = (addresses[lane] & on) | (first & ~on);
            others |= u64(address) ^ expected;
            low = std::min(low, address);
            high = std::max(high, address);
            bits |= address;
        }
        stride = i64(step);
        straight = others == 0;
    }
};

// Where lanes find their bytes: lane k at origin + k * step + its address.
struct Memory {
    u8 *origin;
    i64 step;
};

// What one warp asks for, while it is found, checked and counted.
struct Asked {
    Block &block;
    const Op &op;
    const Access &access;
    const u8 *data; // of a store, `size` bytes a lane
    int warp;
    i32 &variable; // in shared memory, of the first lane of the block; -1 where it is not known yet
};

// Moves the data of some lanes, once it is known where their memory is; it lives as long as what it is made of.
class Move {
  public:
    template <class F>
    Move(F &run)
        : context(&run), call([](void *context, const Memory &memory, const Lanes &lanes) {
              (*static_cast<F *>(context))(memory, lanes);
          }) {}
    void operator()(const Memory &memory, const Lanes &lanes) const { call(context, memory, lanes); }

  private:
    void *context;
    void (*call)(void *, const Memory &, const Lanes &);
};

// The shared variable of an access, by the first lane of the block that goes there.
inline i32 variable_of(const Asked &asked, i64 address) {
    if (asked.variable < 0) {
        const auto &starts = asked.block.launch.shared_starts;
        const i64 place = address + (asked.access.issued[SHARED] > 0 ? asked.access.shift[SHARED] : 0);
        asked.variable = 0;
        for (size_t number = 1; number < starts.size() && starts[number] <= place; number++)
            asked.variable = i32(number);
    }
    return asked.variable;
}

// Resolve, check, count and note the lanes of a warp, and move their data; false for a suspicion.
bool by_space(const Asked &asked, const Lanes &lanes, const Move &move);

// The lanes of a warp at the addresses in from[0].
inline void fill(const Block &block, const Op &op, int warp, Lanes &lanes) {
    if (op.flags & SHORT_ADDRESS)
        lanes.fill(block.at<i32>(op.from[0]) + warp * LANES, op.immediate, block.mask[warp]);
    else
        lanes.fill(block.at<i64>(op.from[0]) + warp * LANES, op.immediate, block.mask[warp]);
}

// What follows is compiled for the vector instructions of the file that includes it.
namespace {

template <class T> inline T read(const u8 *place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

// One element of each lane into a register of type R; T says its width and whether it has a sign. more: what each lane
// is behind the one before, besides.
template <class T, class R> void fetch(const u8 *origin, const Form &form, i64 more, R *into) {
    const i64 step = form.stride + more;
    u32 rest = form.mask;
    for (int row = 0; form.rows >> row; row++)
        if (form.rows >> row & 1) {
            const int first = row * ROW;
            const u8 *place = origin + form.places[first] + first * more;
            rest &= ~(IN_ROW << first);
            if (step == sizeof(R) && sizeof(T) == sizeof(R))
                std::memcpy(into + first, place, ROW * sizeof(R));
            else if (!step)
                std::fill_n(into + first, ROW, R(read<T>(place)));
            else
                for (int lane = first; lane < first + ROW; lane++, place += step)
                    into[lane] = R(read<T>(place));
        }
    if (rest == ALL) {
        for (int lane = 0; lane < LANES; lane++)
            into[lane] = R(read<T>(origin + form.places[lane] + lane * more));
        return;
    }
    for (; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        into[lane] = R(read<T>(origin + form.places[lane] + lane * more));
    }
}

// What lanes wrote lies lane by lane, `count` elements each.
template <class T> void put(u8 *origin, const Form &form, i64 more, const u8 *data, i32 count) {
    const i64 size = i64(sizeof(T)) * count;
    u32 rest = form.mask;
    for (int row = 0; form.stride + more == size && form.rows >> row; row++)
        if (form.rows >> row & 1) {
            const int first = row * ROW;
            rest &= ~(IN_ROW << first);
            std::memcpy(origin + form.places[first] + first * more, data + first * size, size_t(ROW * size));
        }
    for (; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        u8 *place = origin + form.places[lane] + lane * more;
        for (int element = 0; element < count; element++)
            std::memcpy(place + element * int(sizeof(T)), data + lane * size + element * int(sizeof(T)), sizeof(T));
    }
}

} // namespace

} // namespace engine
