// Machine code: operations on integers.
#pragma once

#include "sass_compare.hpp"

#include <algorithm>

namespace engine::LEVEL {

namespace {

template <int COUNT> void add_pairs(Warp &warp, const Instruction &instruction, u32 mask) {
    Pairs sums, more;
    integer(warp, instruction.sources[0], sums.of);
    for (int k = 1; k < COUNT; k++) {
        integer(warp, instruction.sources[k], more.of);
        EACH sums.of[lane] += more.of[lane];
    }
    write(warp, instruction, sums.of, mask);
}
// Take one of two pairs: the first if `takes(condition, x, y)`.
template <class F> void chosen_pair(Warp &warp, const Instruction &instruction, u32 mask, F takes) {
    Pairs x, y;
    integer(warp, instruction.sources[0], x.of);
    integer(warp, instruction.sources[1], y.of);
    const u32 holds = warp.holds(instruction.conditions[0]);
    EACH x.of[lane] = takes((holds >> lane & 1) != 0, x.of[lane], y.of[lane]) ? x.of[lane] : y.of[lane];
    write(warp, instruction, x.of, mask);
}

void add_with_carry(Warp &warp, const Instruction &instruction, u32 mask) {
    Words sums;
    const u32 *from[3];
    u64 plus = 0;
    for (int k = 0; k < 3; k++)
        from[k] = warp.at(instruction.sources[k].place), plus += instruction.sources[k].plus;
    const u32 first = warp.holds(instruction.conditions[0]), second = warp.holds(instruction.conditions[1]);
    u32 carry = 0, second_carry = 0;
    EACH {
        u64 sum = plus + (first >> lane & 1) + (second >> lane & 1);
        for (int k = 0; k < 3; k++)
            sum += from[k][lane] ^ instruction.sources[k].flip;
        sums.of[lane] = u32(sum);
        carry |= u32(sum >> 32 >= 1) << lane;
        second_carry |= u32(sum >> 32 >= 2) << lane;
    }
    write(warp, instruction, sums.of, mask);
    write_predicate(warp, instruction.into_predicate[0], carry, mask);
    write_predicate(warp, instruction.into_predicate[1], second_carry, mask);
}

// mode[0]: signed; mode[1]: keep only the upper word of the result
void multiply_wide(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[2];
    Pairs sums;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *y = word(warp, instruction.sources[1], own[1]);
    integer(warp, instruction.sources[2], sums.of);
    const u32 carried = warp.holds(instruction.conditions[0]);
    u32 carry = 0;
    if (!carried && instruction.into_predicate[0] < 0) {
        if (instruction.mode[0])
            EACH sums.of[lane] += u64(i64(i32(x[lane])) * i32(y[lane]));
        else
            EACH sums.of[lane] += u64(x[lane]) * y[lane];
    } else
        EACH {
            const u64 product = instruction.mode[0] ? u64(i64(i32(x[lane])) * i32(y[lane])) : u64(x[lane]) * y[lane];
            const unsigned __int128 sum = (unsigned __int128)(product) + sums.of[lane] + (carried >> lane & 1);
            sums.of[lane] = u64(sum);
            carry |= u32(sum >> 64) << lane;
        }
    if (instruction.mode[1])
        EACH sums.of[lane] >>= 32;
    if (instruction.mode[1])
        EACH own[0].of[lane] = u32(sums.of[lane]);
    instruction.mode[1] ? write(warp, instruction, own[0].of, mask) : write(warp, instruction, sums.of, mask);
    write_predicate(warp, instruction.into_predicate[0], carry, mask);
}

// mode[0]: bits to shift; mode[1]: shift a pair of words and use the upper word; mode[2]: the upper word of this pair
// is the sign of the lower word
void shift_and_add(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[3], sums;
    const u32 *x = warp.at(instruction.sources[0].place), *y = word(warp, instruction.sources[1], own[1]);
    const u32 *above = warp.at(instruction.sources[2].place), carried = warp.holds(instruction.conditions[0]);
    const bool minus = instruction.sources[0].plus;
    u32 carry = 0;
    EACH {
        u64 value = x[lane];
        if (instruction.mode[1])
            value |= u64(instruction.mode[2] ? u32(i32(x[lane]) >> 31) : above[lane]) << 32;
        value = minus ? -value : value;
        const u32 shifted = instruction.mode[1]
                                ? u32(instruction.mode[0] ? value >> (32 - instruction.mode[0]) : value >> 32)
                                : u32(value) << instruction.mode[0];
        const u64 sum = u64(shifted) + y[lane] + (carried >> lane & 1);
        sums.of[lane] = u32(sum);
        carry |= u32(sum >> 32) << lane;
    }
    write(warp, instruction, sums.of, mask);
    write_predicate(warp, instruction.into_predicate[0], carry, mask);
}

// mode[0]: shift right; mode[1]: return the upper word; mode[2]: the amount wraps around; mode[3]: bit 0: signed, bit
// 1: the pair is a 64-bit number, so up to 64 bits are shifted
void funnel(Warp &warp, const Instruction &instruction, u32 mask) {
    const i32 right = instruction.mode[0], high = instruction.mode[1], sign = instruction.mode[3] & 1;
    const u32 most = instruction.mode[3] & 2 ? 64 : 32, wrap = instruction.mode[2] ? most - 1 : ALL;
    words<3>(warp, instruction, mask, [=](u32 low, u32 by, u32 above) {
        u32 n = by & wrap;
        n = n < most ? n : most;
        const u64 x = u64(above) << 32 | low, left = n >= 64 ? 0 : x << (n & 63);
        const u64 signs = u64(i64(x) >> (n & 63)), plain = n >= 64 ? 0 : x >> (n & 63);
        const u64 shifted = !right ? left : sign ? (n >= 64 ? u64(i64(x) >> 63) : signs) : plain;
        return high ? u32(shifted >> 32) : u32(shifted);
    });
}

inline u32 looked_up(i32 table, u32 x, u32 y, u32 z) {
    u32 value = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1)
            value |= (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z);
    return value;
}
// mode[0]: the truth table; mode[1]: how the resulting predicate is combined with a predicate operand
void logic(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[3], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *y = word(warp, instruction.sources[1], own[1]);
    const u32 *z = word(warp, instruction.sources[2], own[2]);
    switch (instruction.mode[0]) {
    case 0xC0: EACH results.of[lane] = x[lane] & y[lane]; break;
    case 0xFC: EACH results.of[lane] = x[lane] | y[lane]; break;
    case 0x3C: EACH results.of[lane] = x[lane] ^ y[lane]; break;
    case 0x96: EACH results.of[lane] = x[lane] ^ y[lane] ^ z[lane]; break;
    case 0xF8: EACH results.of[lane] = x[lane] | (y[lane] & z[lane]); break;
    default: EACH results.of[lane] = looked_up(instruction.mode[0], x[lane], y[lane], z[lane]);
    }
    write(warp, instruction, results.of, mask);
    if (instruction.into_predicate[0] >= 0)
        write_predicate(warp, instruction.into_predicate[0],
                        joined(instruction.mode[1], lanes_where<u32>([&](int lane) { return results.of[lane] != 0; }),
                               warp.holds(instruction.conditions[0])),
                        mask);
}

inline u32 permuted(u32 low, u32 by, u32 high) {
    const u64 bytes = u64(high) << 32 | low;
    u32 permutation = 0;
    for (int k = 0; k < 4; k++) {
        const u32 pick = by >> (4 * k) & 15, byte = bytes >> (8 * (pick & 7)) & 255;
        permutation |= (pick & 8 ? (byte & 128 ? 255u : 0u) : byte) << (8 * k);
    }
    return permutation;
}
inline u32 reversed(u32 x) {
    x = __builtin_bswap32(x);
    x = (x >> 4 & 0x0F0F0F0F) | (x & 0x0F0F0F0F) << 4;
    x = (x >> 2 & 0x33333333) | (x & 0x33333333) << 2;
    return (x >> 1 & 0x55555555) | (x & 0x55555555) << 1;
}
inline u32 bytes_product(u32 x, u32 y, u32 z, bool first, bool second) {
    i32 sum = i32(z);
    for (int k = 0; k < 32; k += 8)
        sum += (first ? i32(i8(x >> k)) : i32(u8(x >> k))) * (second ? i32(i8(y >> k)) : i32(u8(y >> k)));
    return u32(sum);
}
// Apply a function to each lane's predicate and words.
template <int N, class F> inline void chosen(Warp &warp, const Instruction &instruction, u32 mask, F function) {
    Words own[3], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *y = word(warp, instruction.sources[1], own[1]);
    const u32 *z = N > 2 ? word(warp, instruction.sources[2], own[2]) : y;
    const u32 first = warp.holds(instruction.conditions[0]);
#pragma GCC ivdep
    EACH results.of[lane] = function((first & bit<u32>(lane)) != 0, x[lane], y[lane], z[lane]);
    write(warp, instruction, results.of, mask);
}
// Extend the lowest bits of each lane's word; the second operand says how many. T: u32 for zeros, i32 for the sign.
template <class T> inline void extend(Warp &warp, const Instruction &instruction, u32 mask) {
    const bool wraps = instruction.mode[0]; // whether a width over 31 wraps around
    words<2>(warp, instruction, mask, [wraps](u32 x, u32 width, u32) {
        const u32 bits = wraps ? width & 31 : std::min(width, 32u);
        return bits ? u32(T(x << (32 - bits)) >> (32 - bits)) : 0u;
    });
}
inline u32 lesser(bool least, u32 x, u32 y) { return (x < y) == least ? x : y; }
inline u32 lesser_signed(bool least, u32 x, u32 y) { return (i32(x) < i32(y)) == least ? x : y; }

// The integers of a word: one of 32 bits, or two of 16 bits. `each` applies a function to those of three words.
template <class T> struct One {
    using Number = T;
    template <class F> static u32 each(u32 x, u32 y, u32 z, F function) { return u32(function(T(x), T(y), T(z))); }
};
template <class T> struct Two {
    using Number = T;
    template <class F> static u32 each(u32 x, u32 y, u32 z, F function) {
        const u32 low = u16(function(T(x), T(y), T(z)));
        return u32(u16(function(T(x >> 16), T(y >> 16), T(z >> 16)))) << 16 | low;
    }
};
// min(x, y), min(x + y, z) or min(x, y, z), by OPERANDS and ADDS; the condition says: not min, but max
template <class V, int OPERANDS, bool ADDS> void least(Warp &warp, const Instruction &instruction, u32 mask) {
    using T = typename V::Number;
    const bool relu = instruction.flags & RELU;
    chosen<OPERANDS>(warp, instruction, mask, [=](bool smaller, u32 a, u32 b, u32 c) {
        return V::each(a, b, c, [=](T x, T y, T z) {
            const T first = ADDS ? T(x + y) : (x < y) == smaller ? x : y;
            const T result = OPERANDS == 2 ? first : (first < z) == smaller ? first : z;
            return relu && result < T(0) ? T(0) : result;
        });
    });
}
inline u32 absolute_difference(u32 x, u32 y, bool sign) { return (sign ? i32(x) < i32(y) : x < y) ? y - x : x - y; }
// accumulates: add the differences of all bytes to z, else keep them in their bytes
inline u32 differences_of_bytes(u32 x, u32 y, u32 z, bool sign, bool accumulates) {
    u32 sum = z, bytes = 0;
    for (int k = 0; k < 32; k += 8) {
        const u32 difference = sign ? absolute_difference(u32(i8(x >> k)), u32(i8(y >> k)), true)
                                    : absolute_difference(u8(x >> k), u8(y >> k), false);
        sum += difference, bytes |= (difference & 255) << k;
    }
    return accumulates ? sum : bytes;
}
// Two of the products of 16-bit numbers of x with bytes of y, from bit `from` of y on.
inline u32 pairs_product(u32 x, u32 y, u32 z, bool first, bool second, i32 from) {
    i32 sum = i32(z);
    for (int k = 0; k < 2; k++) {
        const u32 half = x >> (16 * k), byte = y >> (from + 8 * k);
        sum += (first ? i32(i16(half)) : i32(u16(half))) * (second ? i32(i8(byte)) : i32(u8(byte)));
    }
    return u32(sum);
}
inline u32 mask_of_bits(u32 from, u32 count) {
    const u64 bits = count >= 32 ? u64(ALL) : (u64(1) << count) - 1;
    return from >= 32 ? 0 : u32(bits << from);
}
// Pack x and y, as integers of so many bits, below z.
inline u32 packed_integers(u32 x, u32 y, u32 z, i32 bits, bool sign) {
    const i64 low = sign ? -(i64(1) << (bits - 1)) : 0, high = (i64(1) << (bits - sign)) - 1;
    const u64 kept = (u64(1) << bits) - 1;
    const u64 first = u64(std::min(std::max(i64(i32(x)), low), high)) & kept;
    const u64 second = u64(std::min(std::max(i64(i32(y)), low), high)) & kept;
    return u32(u64(z) << 2 * bits | first << bits | second);
}

} // namespace

} // namespace engine::LEVEL
