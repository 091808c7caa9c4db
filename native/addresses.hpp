// The addresses of a warp's lanes, and the functions that move data between memory and registers.
#pragma once

#include "launch.hpp"

#include <algorithm>

namespace engine {

// The address space is divided as in cudabench/simulator/memory.py.
constexpr i64 WINDOW = i64(1) << 32; // the size of an address window in bytes
constexpr i64 WIDEST = 32;           // the most bytes that one lane accesses by one instruction
constexpr i32 SHORT_ADDRESS = 1;     // a flag of Op: its addresses have 32 bits

// The lanes' addresses. `places` may be relative to any start address, which is not kept here.
struct Form {
    const i64 *places; // an array of 32 addresses, one for each lane
    u32 mask;
    u32 rows; // bit k is set if the eight lanes of group k are all active and have this stride
    i64 stride;
};
constexpr int ROW = 8;
constexpr u32 ROWS = 15, IN_ROW = 255; // masks of all four rows, and of all lanes in a row

// The addresses of a warp's active lanes; inactive lanes have the address of the first active lane.
struct Lanes {
    i64 addresses[LANES];
    u32 mask;
    bool straight; // whether all lanes are active, and the address grows by `stride` from each lane to the next
    i64 stride;
    i64 low, high, bits; // the lowest and the highest address; the OR of all addresses

    template <class A> void fill(const A *base, i64 offset, u32 active) {
        mask = active;
        for (int lane = 0; lane < LANES; lane++)
            addresses[lane] = i64(u64(i64(base[lane])) + u64(offset)); // unsigned, because the sum may wrap
        summarize();
    }
    // Take the lanes `active` of `all`. Subtract the start of a window from their addresses, so that these become
    // offsets in the window.
    void part(const Lanes &all, u32 active, i64 window) { fill(all.addresses, i64(-u64(window)), active); }
    bool within(i64 from, i64 to, i64 size) const { return low >= from && high <= to - size && !(bits & (size - 1)); }
    Form form() const { return {addresses, mask, straight ? ROWS : 0, stride}; }

  private:
    void summarize() {
        const i64 first = addresses[first_lane(mask)];
        const u64 step = u64(addresses[1]) - u64(first);
        u64 differences = u64(mask) ^ ALL, expected = u64(first);
        low = high = bits = first;
        for (int lane = 0; lane < LANES; lane++, expected += step) {
            const i64 active = -i64(mask >> lane & 1);
            const i64 address = addresses[lane] = (addresses[lane] & active) | (first & ~active);
            differences |= u64(address) ^ expected;
            low = std::min(low, address);
            high = std::max(high, address);
            bits |= address;
        }
        stride = i64(step);
        straight = differences == 0;
    }
};

// The memory of a warp's lanes: the bytes of lane k are at origin + k * step + its address.
struct Memory {
    u8 *origin;
    i64 step;
};

// One warp's access to memory, while it is resolved, checked and counted.
struct WarpAccess {
    Block &block;
    const Op &op;
    const Access &access;
    const u8 *data; // for a store: the values to write, `size` bytes for each lane
    int warp;
    i32 &variable; // index of the shared variable that the block's first lane accesses; -1 if it is not known yet
};

// A reference to a function that moves the data of lanes once their memory is known. That function must live longer
// than this object.
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

// Return the index of the shared variable that contains an address; the address is that of the block's first lane.
inline i32 variable_of(const WarpAccess &warp_access, i64 address) {
    if (warp_access.variable < 0) {
        const auto &starts = warp_access.block.launch.shared_starts;
        const i64 place = address + (warp_access.access.issued[SHARED] > 0 ? warp_access.access.shift[SHARED] : 0);
        warp_access.variable = 0;
        for (size_t number = 1; number < starts.size() && starts[number] <= place; number++)
            warp_access.variable = i32(number);
    }
    return warp_access.variable;
}

// Resolve, check, count and record the access of a warp's lanes, and move their data. Return false if the launch may
// have a hazard (a suspicion).
bool by_space(const WarpAccess &warp_access, const Lanes &lanes, const Move &move);

// Set `lanes` to the addresses of a warp, which register from[0] holds.
inline void fill(const Block &block, const Op &op, int warp, Lanes &lanes) {
    if (op.flags & SHORT_ADDRESS)
        lanes.fill(block.at<i32>(op.from[0]) + warp * LANES, op.immediate, block.mask[warp]);
    else
        lanes.fill(block.at<i64>(op.from[0]) + warp * LANES, op.immediate, block.mask[warp]);
}

// Each file that includes this header compiles the code below for its own set of vector instructions.
namespace {

template <class T> inline T read(const u8 *place) {
    T value;
    std::memcpy(&value, place, sizeof value);
    return value;
}

// Load one element of type T for each lane into a register of type R. The byte address of lane k is raised by k *
// `more`.
template <class T, class R> void fetch(const u8 *origin, const Form &form, i64 more, R *into) {
    const i64 step = form.stride + more;
    auto row = [&](int first) {
        const u8 *place = origin + form.places[first] + first * more;
        if (step == sizeof(R) && sizeof(T) == sizeof(R))
            std::memcpy(into + first, place, ROW * sizeof(R));
        else if (!step)
            std::fill_n(into + first, ROW, R(read<T>(place)));
        else
            for (int lane = first; lane < first + ROW; lane++, place += step)
                into[lane] = R(read<T>(place));
    };
    if (form.rows == ROWS) {
        for (int first = 0; first < LANES; first += ROW)
            row(first);
        return;
    }
    if (form.mask == ALL && !form.rows) {
        for (int lane = 0; lane < LANES; lane++)
            into[lane] = R(read<T>(origin + form.places[lane] + lane * more));
        return;
    }
    u32 rest = form.mask;
    for (int number = 0; form.rows >> number; number++)
        if (form.rows >> number & 1) {
            row(number * ROW);
            rest &= ~(IN_ROW << number * ROW);
        }
    for (; rest; rest &= rest - 1) {
        const int lane = first_lane(rest);
        into[lane] = R(read<T>(origin + form.places[lane] + lane * more));
    }
}

// Store the elements of each lane; `data` holds the `count` elements of lane 0, then those of lane 1, and so on.
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
