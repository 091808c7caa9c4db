// Machine code: operations that use only registers, for 32 lanes at once.
#include "halves.hpp"
#include "sass.hpp"

#include <cmath>

namespace engine::LEVEL {

namespace {

using sass::Condition;
using sass::Instruction;
using sass::Source;
using sass::Warp;

#define EACH for (int lane = 0; lane < LANES; lane++)

struct alignas(64) Words {
    u32 of[LANES];
};
struct alignas(64) Pairs {
    u64 of[LANES];
};

// Return an operand's words, one for each lane. They are those of the register itself or, if the operand modifies them
// (such as by negation), `own`.
inline const u32 *word(const Warp &warp, const Source &source, Words &own) {
    const u32 *from = warp.at(source.place);
    if (source.keep == ALL && !source.flip && !source.plus)
        return from;
    EACH own.of[lane] = ((from[lane] & source.keep) ^ source.flip) + source.plus;
    return own.of;
}
inline void pair(const Warp &warp, const Source &source, u64 *into) {
    const u32 *low = warp.at(source.place), *high = warp.at(source.place + 1);
    EACH into[lane] = low[lane] | u64(high[lane]) << 32;
}
// Read pairs of registers as 64-bit integers. The operand may be negated.
inline void integer(const Warp &warp, const Source &source, u64 *into) {
    pair(warp, source, into);
    if (source.flip)
        EACH into[lane] = ~into[lane] + source.plus;
}
inline void real(const Warp &warp, const Source &source, f64 *into) {
    alignas(64) u64 bits[LANES];
    pair(warp, source, bits);
    const u64 keep = u64(source.keep) << 32 | ALL, flip = u64(source.flip) << 32;
    EACH into[lane] = as_bits<f64>((bits[lane] & keep) ^ flip);
}

inline void write(Warp &warp, const Instruction &instruction, const u32 *results, u32 mask, int behind = 0) {
    if (instruction.into >= 0)
        merge(warp.registers[instruction.into + behind], results, mask);
}
inline void write(Warp &warp, const Instruction &instruction, const u64 *results, u32 mask) {
    Words low, high;
    EACH low.of[lane] = u32(results[lane]), high.of[lane] = u32(results[lane] >> 32);
    write(warp, instruction, low.of, mask);
    write(warp, instruction, high.of, mask, 1);
}
inline void write(Warp &warp, const Instruction &instruction, const f64 *results, u32 mask) {
    Pairs bits;
    EACH bits.of[lane] = results[lane] == results[lane] ? as_bits<u64>(results[lane]) : 0xFFF8000000000000u;
    write(warp, instruction, bits.of, mask);
}
inline void write_predicate(Warp &warp, i32 index, u32 bits, u32 mask) {
    if (index >= 0)
        put(warp.predicates[index], bits, mask);
}

inline f32 real(u32 word) { return as_bits<f32>(word); }
inline u32 number(f32 x) { return x == x ? as_bits<u32>(x) : 0x7FFFFFFFu; }

// Apply a function to each lane's words, one word of each operand.
template <int N, class F> inline void words(Warp &warp, const Instruction &instruction, u32 mask, F function) {
    Words own[3], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]);
    const u32 *y = N > 1 ? word(warp, instruction.sources[1], own[1]) : x;
    const u32 *z = N > 2 ? word(warp, instruction.sources[2], own[2]) : x;
#pragma GCC ivdep
    EACH results.of[lane] = function(x[lane], y[lane], z[lane]);
    write(warp, instruction, results.of, mask);
}
template <int N, class F> inline void floats(Warp &warp, const Instruction &instruction, u32 mask, F function) {
    Words own[3];
    alignas(64) f32 results[LANES];
    Mode mode(instruction.flags);
    const u32 *x = word(warp, instruction.sources[0], own[0]);
    const u32 *y = N > 1 ? word(warp, instruction.sources[1], own[1]) : x;
    const u32 *z = N > 2 ? word(warp, instruction.sources[2], own[2]) : x;
#pragma GCC ivdep
    EACH results[lane] = function(real(x[lane]), real(y[lane]), real(z[lane]));
    if (instruction.flags)
        finish(results, instruction.flags);
    EACH own[0].of[lane] = number(results[lane]);
    write(warp, instruction, own[0].of, mask);
}
template <int N, class F> inline void doubles(Warp &warp, const Instruction &instruction, u32 mask, F function) {
    alignas(64) f64 x[LANES], y[LANES], z[LANES], results[LANES];
    Mode mode(instruction.flags);
    real(warp, instruction.sources[0], x);
    real(warp, instruction.sources[N > 1 ? 1 : 0], y);
    real(warp, instruction.sources[N > 2 ? 2 : 0], z);
#pragma GCC ivdep
    EACH results[lane] = function(x[lane], y[lane], z[lane]);
    write(warp, instruction, results, mask);
}

// Combine the result of a comparison with a predicate. how: 0 and, 1 or, 2 exclusive or; it is mode[1] of the
// instruction.
inline u32 joined(i32 how, u32 x, u32 y) { return how == 0 ? x & y : how == 1 ? x | y : x ^ y; }
inline void compared(Warp &warp, const Instruction &instruction, u32 bits, u32 mask) {
    const u32 with = warp.holds(instruction.conditions[0]);
    write_predicate(warp, instruction.into_predicate[0], joined(instruction.mode[1], bits, with), mask);
    write_predicate(warp, instruction.into_predicate[1], joined(instruction.mode[1], ~bits, with), mask);
}

// Return the lanes whose operands have one of the wanted relations. Each bit of `wanted` is a relation: 1 less, 2
// equal, 4 greater, 8 unordered (a NaN).
template <class T> inline u32 relation(i32 wanted, const T *x, const T *y) {
    u32 lanes = 0;
    if (wanted & 1)
        lanes |= lanes_where<T>([=](int lane) { return x[lane] < y[lane]; });
    if (wanted & 2)
        lanes |= lanes_where<T>([=](int lane) { return x[lane] == y[lane]; });
    if (wanted & 4)
        lanes |= lanes_where<T>([=](int lane) { return x[lane] > y[lane]; });
    if constexpr (std::is_floating_point_v<T>)
        if (wanted & 8)
            lanes |= lanes_where<T>([=](int lane) { return (x[lane] != x[lane]) | (y[lane] != y[lane]); });
    return lanes;
}
template <class T> void compare_words(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[2];
    const T *x = reinterpret_cast<const T *>(word(warp, instruction.sources[0], own[0]));
    const T *y = reinterpret_cast<const T *>(word(warp, instruction.sources[1], own[1]));
    Mode mode(instruction.flags);
    u32 holds = relation<T>(instruction.mode[0], x, y);
    // .EX compares the upper words of 64-bit numbers; where these are equal, the result for the lower words decides
    if (instruction.mode[2]) {
        const u32 lower = warp.holds(instruction.conditions[1]), equal = relation<T>(2, x, y);
        const i32 strict = instruction.mode[0] == 5 ? 5 : instruction.mode[0] & ~2;
        holds = (equal & lower) | (~equal & relation<T>(strict, x, y));
    }
    compared(warp, instruction, holds, mask);
}
// Set the register to the result of a comparison. mode[2]: to 1.0 if it holds, not to all ones
void compare_to_register(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[2], results;
    const f32 *x = reinterpret_cast<const f32 *>(word(warp, instruction.sources[0], own[0]));
    const f32 *y = reinterpret_cast<const f32 *>(word(warp, instruction.sources[1], own[1]));
    Mode mode(instruction.flags);
    const u32 holds = relation<f32>(instruction.mode[0], x, y), one = instruction.mode[2] ? as_bits<u32>(1.0f) : ALL;
    const u32 both = joined(instruction.mode[1], holds, warp.holds(instruction.conditions[0]));
    EACH results.of[lane] = both >> lane & 1 ? one : 0;
    write(warp, instruction, results.of, mask);
}
void compare_doubles(Warp &warp, const Instruction &instruction, u32 mask) {
    alignas(64) f64 x[LANES], y[LANES];
    real(warp, instruction.sources[0], x);
    real(warp, instruction.sources[1], y);
    if (!instruction.mode[2])
        return compared(warp, instruction, relation<f64>(instruction.mode[0], x, y), mask);
    // .MAX and .MIN have two results: whether the first operand is chosen, and whether both operands are NaN.
    const bool greater = instruction.mode[2] == 1;
    u32 first = 0, none = 0;
    EACH {
        const bool zero = x[lane] == y[lane] && std::signbit(x[lane]) != greater;
        const bool ahead = greater ? x[lane] > y[lane] : x[lane] < y[lane];
        first |= u32(ahead || zero || y[lane] != y[lane]) << lane;
        none |= u32(x[lane] != x[lane] && y[lane] != y[lane]) << lane;
    }
    const u32 with = warp.holds(instruction.conditions[0]);
    write_predicate(warp, instruction.into_predicate[0], first & with, mask);
    write_predicate(warp, instruction.into_predicate[1], none & with, mask);
}

template <class T> void compare_pairs(Warp &warp, const Instruction &instruction, u32 mask) {
    Pairs x, y;
    integer(warp, instruction.sources[0], x.of);
    integer(warp, instruction.sources[1], y.of);
    const T *left = reinterpret_cast<const T *>(x.of), *right = reinterpret_cast<const T *>(y.of);
    compared(warp, instruction, relation<T>(instruction.mode[0], left, right), mask);
}
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
inline u32 lesser_float(bool least, i32 flags, u32 x, u32 y) {
    if (flags & FLUSH)
        x = as_bits<u32>(flushed(real(x))), y = as_bits<u32>(flushed(real(y)));
    const f32 a = real(x), b = real(y);
    const u32 zeros = least ? x | y : x & y, picked = (a < b) == least ? x : y;
    return a != a ? (b != b ? 0x7FFFFFFFu : y) : b != b ? x : a == b ? zeros : picked;
}

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

inline f32 upper_word(f64 x) { return as_bits<f32>(u32(as_bits<u64>(x) >> 32)); }
inline f64 as_upper(f32 x) { return as_bits<f64>(u64(as_bits<u32>(x)) << 32); }
constexpr f64 TURN = 6.283185307179586476925;

inline u32 needs_slow_division(u32 x, u32 y) {
    const i32 above = x >> 23 & 255, below = y >> 23 & 255, difference = above - below;
    return (above < 25) | (above == 255) | (below < 2) | (below >= 252) | (difference > 126) | (difference < -124);
}

// 16-bit floats, two in each word. A result is rounded once.
template <class H> inline u32 narrow(f64 x) {
    if (x != x)
        return 0x7FFF;
    return H::rounded(H::near(x), NEAREST);
}
// toward_zero: instead of to the nearest number
template <class H> inline u32 narrow(f64 x, bool toward_zero) {
    const u32 near = narrow<H>(x);
    return toward_zero && std::fabs(f64(H::wide(near))) > std::fabs(x) ? near - 1 : near;
}
inline void half_operand(Warp &warp, const Source &source, u32 *into) {
    const u32 *x = warp.at(source.place);
    EACH {
        u32 both = x[lane];
        both = source.half == 1 ? (both & 0xFFFF) * 0x10001u : source.half == 2 ? (both >> 16) * 0x10001u : both;
        into[lane] = (both & source.keep) ^ source.flip;
    }
}
// mode[0]: the relation; mode[1]: how it is joined with a predicate; mode[2]: a register gets 1.0, not all ones
template <class H> void compare_halves(Warp &warp, const Instruction &instruction, u32 mask) {
    alignas(64) u32 from[2][LANES];
    alignas(64) f32 x[LANES], y[LANES];
    Words results = {};
    half_operand(warp, instruction.sources[0], from[0]);
    half_operand(warp, instruction.sources[1], from[1]);
    const u32 with = warp.holds(instruction.conditions[0]);
    const u32 one = instruction.mode[2] ? narrow<H>(1) : 0xFFFF;
    for (int part = 0; part < 32; part += 16) {
        EACH x[lane] = H::wide(from[0][lane] >> part & 0xFFFF), y[lane] = H::wide(from[1][lane] >> part & 0xFFFF);
        const u32 holds = joined(instruction.mode[1], relation<f32>(instruction.mode[0], x, y), with);
        if (!part)
            write_predicate(warp, instruction.into_predicate[0], holds, mask);
        EACH results.of[lane] |= holds >> lane & 1 ? one << part : 0;
    }
    if (instruction.into >= 0)
        write(warp, instruction, results.of, mask);
}
// least: the smaller number; nan: NaN if one of the two is NaN
inline f64 least_half(bool least, bool nan, f64 x, f64 y) {
    if (x != x || y != y)
        return nan || x != x ? (nan && x != x ? x : y) : x;
    return (x == y ? std::signbit(x) : x < y) == least ? x : y;
}
template <class H, int N, class F> void halves(Warp &warp, const Instruction &instruction, u32 mask, F function) {
    alignas(64) u32 from[3][LANES];
    Words results;
    for (int k = 0; k < N; k++)
        half_operand(warp, instruction.sources[k], from[k]);
    EACH {
        u32 both = 0;
        for (int part = 0; part < 32; part += 16) {
            f64 of[3] = {};
            for (int k = 0; k < N; k++)
                of[k] = H::wide(from[k][lane] >> part & 0xFFFF);
            f64 exact = function(of[0], of[1], of[2]);
            if (instruction.flags & RELU)
                exact = without_negative(exact);
            if (instruction.flags & SATURATE)
                exact = saturated(exact);
            both |= narrow<H>(exact) << part;
        }
        results.of[lane] = both;
    }
    write(warp, instruction, results.of, mask);
}
// Floats with 8 bits: E4M3 has BITS = 3 bits of fraction and no infinity, E5M2 has 2. Larger numbers become the largest
// one (PTX ISA, cvt .satfinite).
template <int BITS> inline u32 narrow_to_byte(f32 x) {
    constexpr f32 MOST = BITS == 3 ? 448 : 57344;
    const u32 sign = as_bits<u32>(x) >> 24 & 128;
    if (x != x)
        return 0x7F;
    const f32 size = std::min(std::fabs(x), MOST);
    const int least = BITS == 3 ? -6 : -14, exponent = std::max(size > 0 ? std::ilogb(size) : least, least);
    const f32 steps = std::nearbyint(std::scalbn(size, BITS - exponent)); // in units of the last place
    return sign | u32(i32(steps) + ((exponent - least) << BITS));
}
template <int BITS> inline u32 byte_to_half(u32 byte) {
    const u32 sign = (byte & 128) << 8, size = byte & 127;
    if (BITS == 2)
        return byte << 8;
    if (size == 127)
        return 0x7FFF;
    return sign | Float16::rounded(as_bits<f32>(size << 20) * 0x1p120f, NEAREST);
}
// The lower two bytes of a word, or the upper two, as float16.
template <int BITS> inline u32 both_bytes(u32 x, i32 half) {
    x >>= half == 2 ? 16 : 0;
    return byte_to_half<BITS>(x >> 8 & 255) << 16 | byte_to_half<BITS>(x & 255);
}
inline u32 widened(u32 x, i32 half) { return number(Float16::wide(half == 2 ? x >> 16 : x & 0xFFFF)); }

// Modes of the conversion to integers. mode[0]: the integer is signed; mode[1]: it has 64 bits; mode[2], the float: 0
// float32, 1 float64, 2 float16; mode[3], the rounding: 0 to nearest, 1 toward zero, 2 down, 3 up.
inline f64 whole(f64 x, i32 how) {
    return how == 1 ? std::trunc(x) : how == 2 ? std::floor(x) : how == 3 ? std::ceil(x) : std::nearbyint(x);
}
void to_integer(Warp &warp, const Instruction &instruction, u32 mask) {
    alignas(64) f64 from[LANES];
    Words own;
    Pairs integers;
    if (instruction.mode[2] == 1)
        real(warp, instruction.sources[0], from);
    else if (instruction.mode[2] == 2) {
        half_operand(warp, instruction.sources[0], own.of);
        EACH from[lane] = Float16::wide(own.of[lane] & 0xFFFF);
    } else {
        const u32 *x = word(warp, instruction.sources[0], own);
        EACH from[lane] = instruction.flags & FLUSH ? flushed(real(x[lane])) : real(x[lane]);
    }
    const bool sign = instruction.mode[0], wide = instruction.mode[1];
    const f64 low = sign ? (wide ? -0x1p63 : -0x1p31) : 0;
    const f64 high = sign ? (wide ? 0x1p63 : 2147483647.) : (wide ? 0x1p64 : 4294967295.);
    const u64 least = sign ? (wide ? u64(1) << 63 : 0x80000000u) : 0;
    const u64 most = sign ? (wide ? ~u64(0) >> 1 : 0x7FFFFFFFu) : ~u64(0);
    const u64 of_nan = wide ? u64(1) << 63 : instruction.mode[2] == 1 ? 0x80000000u : 0;
    EACH {
        const f64 x = whole(from[lane], instruction.mode[3]);
        integers.of[lane] = x != x ? of_nan : x <= low ? least : x >= high ? most : sign ? u64(i64(x)) : u64(x);
    }
    if (wide)
        return write(warp, instruction, integers.of, mask);
    EACH own.of[lane] = u32(integers.of[lane]);
    write(warp, instruction, own.of, mask);
}
// mode[0]: the integer is signed; mode[1]: it has 64 bits; mode[2]: convert to: 0 float32, 1 float64, 2 float16;
// mode[3]: which part of the word to convert: bits to shift left, plus 256 * bits to shift right afterwards
void from_integer(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own;
    Pairs from;
    alignas(64) f64 results[LANES];
    Mode mode(instruction.flags);
    if (instruction.mode[1])
        integer(warp, instruction.sources[0], from.of);
    else {
        const u32 *x = word(warp, instruction.sources[0], own);
        const i32 left = instruction.mode[3] & 255, right = instruction.mode[3] >> 8;
        EACH {
            const u32 part = x[lane] << left;
            from.of[lane] = instruction.mode[0] ? u64(i64(i32(part) >> right)) : part >> right;
        }
    }
    if (instruction.mode[2]) {
        EACH results[lane] = instruction.mode[0] ? f64(i64(from.of[lane])) : f64(from.of[lane]);
        if (instruction.mode[2] == 1)
            return write(warp, instruction, results, mask);
        EACH own.of[lane] = narrow<Float16>(results[lane]);
        return write(warp, instruction, own.of, mask);
    }
    EACH own.of[lane] = as_bits<u32>(instruction.mode[0] ? f32(i64(from.of[lane])) : f32(from.of[lane]));
    write(warp, instruction, own.of, mask);
}
void widen(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own;
    alignas(64) f64 results[LANES];
    const u32 *x = word(warp, instruction.sources[0], own);
    EACH results[lane] = real(x[lane]);
    write(warp, instruction, results, mask);
}
template <class F> void from_double(Warp &warp, const Instruction &instruction, u32 mask, F function) {
    alignas(64) f64 x[LANES];
    Words results;
    Mode mode(instruction.flags);
    real(warp, instruction.sources[0], x);
    EACH results.of[lane] = function(x[lane]);
    write(warp, instruction, results.of, mask);
}

// Exchange between lanes -----------------------------------------------------------------------------------------

// mode[0]: 0 idx, 1 up, 2 down, 3 bfly
void shuffle(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[3], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *by = word(warp, instruction.sources[1], own[1]);
    const u32 *how = word(warp, instruction.sources[2], own[2]);
    u32 inside = 0;
    EACH {
        const i32 segment = how[lane] >> 8 & 31, clamp = how[lane] & 31, step = by[lane] & 31;
        const i32 limit = (lane & segment) | (clamp & ~segment);
        const i32 to = instruction.mode[0] == 0   ? (lane & segment) | (step & ~segment)
                       : instruction.mode[0] == 1 ? lane - step
                       : instruction.mode[0] == 2 ? lane + step
                                                  : lane ^ step;
        const bool in = instruction.mode[0] == 1 ? to >= limit : to <= limit;
        inside |= u32(in) << lane;
        results.of[lane] = x[in ? to & 31 : lane];
    }
    write(warp, instruction, results.of, mask);
    write_predicate(warp, instruction.into_predicate[0], inside, mask);
}
// mode[0]: 0 any, 1 all, 2 equal; mode[1]: whether the result goes to a uniform register
void vote(Warp &warp, const Instruction &instruction, u32 mask) {
    Words results;
    const u32 voters = warp.holds(instruction.conditions[0]) & mask, to = instruction.mode[1] ? ALL : mask;
    const bool holds = instruction.mode[0] == 0   ? voters != 0
                       : instruction.mode[0] == 1 ? voters == mask
                                                  : voters == 0 || voters == mask;
    EACH results.of[lane] = voters;
    write(warp, instruction, results.of, to);
    write_predicate(warp, instruction.into_predicate[0], holds ? ALL : 0, to);
}
// mode[0]: whether to match all lanes (MATCH.ALL)
void match(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own, results;
    const u32 *x = word(warp, instruction.sources[0], own), first = x[first_lane(mask)];
    if (instruction.mode[0]) {
        const bool same = !(mask & ~lanes_where<u32>([=](int lane) { return x[lane] == first; }));
        EACH results.of[lane] = same ? mask : 0;
        write(warp, instruction, results.of, mask);
        return write_predicate(warp, instruction.into_predicate[0], same ? ALL : 0, mask);
    }
    for (u32 rest = mask; rest;) {
        const u32 value = x[first_lane(rest)];
        const u32 alike = rest & lanes_where<u32>([=](int lane) { return x[lane] == value; });
        EACH results.of[lane] = alike & bit<u32>(lane) ? alike : results.of[lane];
        rest &= ~alike;
    }
    write(warp, instruction, results.of, mask);
}
// mode[0]: 0 sum, 1 min, 2 max, 3 and, 4 or, 5 xor; mode[1]: signed
void reduce(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own;
    const u32 *x = word(warp, instruction.sources[0], own);
    u32 total = x[first_lane(mask)];
    for (u32 rest = mask & (mask - 1); rest; rest &= rest - 1) {
        const u32 y = x[first_lane(rest)];
        switch (instruction.mode[0]) {
        case 0: total += y; break;
        case 1:
        case 2: total = (instruction.mode[1] ? lesser_signed : lesser)(instruction.mode[0] == 1, total, y); break;
        case 3: total &= y; break;
        case 4: total |= y; break;
        default: total ^= y;
        }
    }
    EACH own.of[lane] = total;
    write(warp, instruction, own.of, ALL);
}
// Copy the first active lane's value to a uniform register.
void first_active(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own;
    const u32 *values = word(warp, instruction.sources[0], own), value = values[first_lane(mask)];
    u32 alike = 0;
    EACH alike |= u32(values[lane] == value) << lane;
    write_predicate(warp, instruction.into_predicate[0], alike, mask);
    EACH own.of[lane] = value;
    write(warp, instruction, own.of, ALL);
}
void predicate_logic(Warp &warp, const Instruction &instruction, u32 mask) {
    const u32 x = warp.holds(instruction.conditions[0]), y = warp.holds(instruction.conditions[1]),
              z = warp.holds(instruction.conditions[2]);
    write_predicate(warp, instruction.into_predicate[0], looked_up(instruction.mode[0], x, y, z), mask);
    write_predicate(warp, instruction.into_predicate[1], looked_up(instruction.mode[1], x, y, z), mask);
}
// mode[0]: how many bits the predicates are shifted
void predicates_to_register(Warp &warp, const Instruction &instruction, u32 mask) {
    const u32 *all = warp.predicates + (instruction.uniform ? sass::PREDICATES / 2 : 0);
    Words own[2], results;
    const u32 *x = word(warp, instruction.sources[0], own[0]), *which = word(warp, instruction.sources[1], own[1]);
    EACH {
        u32 set = 0;
        for (int k = 0; k < 7; k++)
            set |= (all[k] >> lane & 1) << k;
        results.of[lane] =
            (x[lane] & ~(which[lane] << instruction.mode[0])) | ((set & which[lane]) << instruction.mode[0]);
    }
    write(warp, instruction, results.of, mask);
}
void register_to_predicates(Warp &warp, const Instruction &instruction, u32 mask) {
    Words own[2];
    const u32 *x = word(warp, instruction.sources[0], own[0]), which = word(warp, instruction.sources[1], own[1])[0];
    for (int k = 0; k < 7; k++)
        if (which >> k & 1)
            write_predicate(warp, k,
                            lanes_where<u32>([=](int lane) { return x[lane] >> (instruction.mode[0] + k) & 1; }), mask);
}

// clang-format off
#define RUN(NAME, CALL) {NAME, [](Warp &w, const Instruction &i, u32 m) { CALL; }},
#define WORDS(NAME, N, E) RUN(NAME, words<N>(w, i, m, [&](u32 x, u32 y, u32 z) { (void)x, (void)y, (void)z; return u32(E); }))
#define FLOATS(NAME, N, E) RUN(NAME, floats<N>(w, i, m, [&](f32 x, f32 y, f32 z) { (void)y, (void)z; return f32(E); }))
#define DOUBLES(NAME, N, E) RUN(NAME, doubles<N>(w, i, m, [&](f64 x, f64 y, f64 z) { (void)y, (void)z; return E; }))
#define HALVES(NAME, N, E) \
    RUN(NAME ".f16", halves<Float16 COMMA N>(w, i, m, [](f64 x, f64 y, f64 z) { (void)z; return E; })) \
    RUN(NAME ".bf16", halves<Brain16 COMMA N>(w, i, m, [](f64 x, f64 y, f64 z) { (void)y, (void)z; return E; }))
#define COMMA ,
#define COMPARED(NAME) RUN(NAME ".f16", compare_halves<Float16>(w, i, m)) RUN(NAME ".bf16", compare_halves<Brain16>(w, i, m))
#define LEAST(TYPE, V) \
    RUN("min." TYPE, least<V COMMA 2 COMMA false>(w, i, m)) RUN("addmin." TYPE, least<V COMMA 3 COMMA true>(w, i, m)) \
    RUN("min3." TYPE, least<V COMMA 3 COMMA false>(w, i, m))

const sass::Operation OPERATIONS[] = {
    WORDS("mov", 1, x) WORDS("iadd3", 3, x + y + z) WORDS("imad", 3, x * y + z)
    WORDS("prmt", 3, permuted(x, y, z)) WORDS("popc", 1, __builtin_popcount(x)) WORDS("brev", 1, reversed(x))
    WORDS("iabs", 1, i32(x) < 0 ? -x : x) WORDS("idp", 3, bytes_product(x, y, z, i.mode[0], i.mode[1]))
    WORDS("idp.2a", 3, pairs_product(x, y, z, i.mode[0], i.mode[1], i.mode[2]))
    WORDS("iadd.16x2", 2, Two<u16>::each(x, y, y, [](u16 a, u16 b, u16) { return a + b; }))
    WORDS("vabsdiff.u", 3, absolute_difference(x, y, false) + z) WORDS("vabsdiff.s", 3, absolute_difference(x, y, true) + z)
    WORDS("vabsdiff4.u", 3, differences_of_bytes(x, y, z, false, i.mode[0]))
    WORDS("vabsdiff4.s", 3, differences_of_bytes(x, y, z, true, i.mode[0]))
    WORDS("bmsk", 2, mask_of_bits(x, y)) WORDS("i2ip", 3, packed_integers(x, y, z, i.mode[0], i.mode[1]))
    WORDS("flo.u32", 1, x ? 31 - __builtin_clz(x) : ALL) WORDS("flo.sh.u32", 1, x ? __builtin_clz(x) : ALL)
    WORDS("flo.s32", 1, (x ^= i32(x) >> 31) ? 31 - __builtin_clz(x) : ALL)
    WORDS("flo.sh.s32", 1, (x ^= i32(x) >> 31) ? __builtin_clz(x) : ALL)
    RUN("imad.x", chosen<3>(w, i, m, [](bool carry, u32 x, u32 y, u32 z) { return x * y + z + carry; }))
    RUN("iadd3.carry", add_with_carry(w, i, m)) RUN("imad.wide", multiply_wide(w, i, m))
    RUN("lea", shift_and_add(w, i, m)) RUN("shf", funnel(w, i, m)) RUN("lop3", logic(w, i, m))
    RUN("plop3", predicate_logic(w, i, m))
    RUN("isetp.u32", compare_words<u32>(w, i, m)) RUN("isetp.s32", compare_words<i32>(w, i, m))
    RUN("isetp.u64", compare_pairs<u64>(w, i, m)) RUN("isetp.s64", compare_pairs<i64>(w, i, m))
    RUN("mov.64", add_pairs<1>(w, i, m)) RUN("iadd.64", add_pairs<2>(w, i, m)) RUN("iadd3.64", add_pairs<3>(w, i, m))
    RUN("sel.64", chosen_pair(w, i, m, [](bool first, u64, u64) { return first; }))
    RUN("min.u64", chosen_pair(w, i, m, [](bool least, u64 x, u64 y) { return (x < y) == least; }))
    RUN("min.s64", chosen_pair(w, i, m, [](bool least, u64 x, u64 y) { return (i64(x) < i64(y)) == least; }))
    RUN("fsetp", compare_words<f32>(w, i, m)) RUN("dsetp", compare_doubles(w, i, m))
    RUN("fset", compare_to_register(w, i, m))
    RUN("sel", chosen<2>(w, i, m, [](bool first, u32 x, u32 y, u32) { return first ? x : y; }))
    LEAST("u32", One<u32>) LEAST("s32", One<i32>) LEAST("u16x2", Two<u16>) LEAST("s16x2", Two<i16>)
    RUN("min.f32", chosen<2>(w, i, m, [&](bool least, u32 x, u32 y, u32) { return lesser_float(least, i.flags, x, y); }))
    RUN("min3.f32", chosen<3>(w, i, m, [&](bool least, u32 x, u32 y, u32 z) {
        return lesser_float(least, i.flags, lesser_float(least, i.flags, x, y), z); }))
    RUN("sgxt.u32", extend<u32>(w, i, m))
    RUN("sgxt.s32", extend<i32>(w, i, m))
    FLOATS("fadd", 2, x + y) FLOATS("fmul", 2, x * y) FLOATS("fmul.scaled", 2, x * (y * real(u32(i.mode[0])))) FLOATS("ffma", 3, __builtin_fmaf(x, y, z))
    FLOATS("frnd", 1, whole(x, i.mode[3])) DOUBLES("frnd.f64", 1, whole(x, i.mode[3]))
    RUN("frnd.f16", halves<Float16 COMMA 1>(w, i, m, [&](f64 x, f64, f64) { return whole(x, i.mode[3]); }))
    FLOATS("mufu.rcp", 1, 1 / f64(x)) FLOATS("mufu.rsq", 1, 1 / std::sqrt(f64(x))) FLOATS("mufu.sqrt", 1, std::sqrt(f64(x)))
    FLOATS("mufu.ex2", 1, std::exp2(f64(x))) FLOATS("mufu.lg2", 1, std::log2(f64(x)))
    FLOATS("mufu.sin", 1, std::sin(f64(x) * TURN)) FLOATS("mufu.cos", 1, std::cos(f64(x) * TURN))
    FLOATS("mufu.tanh", 1, std::tanh(f64(x)))
    RUN("mufu.tanh.f16", halves<Float16 COMMA 1>(w, i, m, [](f64 x, f64, f64) { return std::tanh(x); }))
    RUN("mufu.ex2.f16", halves<Float16 COMMA 1>(w, i, m, [](f64 x, f64, f64) { return std::exp2(x); }))
    WORDS("mufu.rcp64h", 1, as_bits<u32>(upper_word(1 / as_upper(real(x)))))
    WORDS("mufu.rsq64h", 1, as_bits<u32>(upper_word(1 / std::sqrt(as_upper(real(x))))))
    RUN("fchk", { Words a COMMA b; const u32 *x = word(w, i.sources[0], a); const u32 *y = word(w, i.sources[1], b);
        write_predicate(w, i.into_predicate[0], lanes_where<u32>([=](int l) { return needs_slow_division(x[l], y[l]); }), m); })
    DOUBLES("dadd", 2, x + y) DOUBLES("dmul", 2, x * y) DOUBLES("dfma", 3, __builtin_fma(x, y, z))
    HALVES("hadd2", 2, sum_to_odd(x, y)) HALVES("hmul2", 2, x * y) HALVES("hfma2", 3, sum_to_odd(x * y, z))
    COMPARED("hset2") COMPARED("hsetp2")
    RUN("hmnmx2.f16", halves<Float16 COMMA 2>(w, i, m, [&](f64 x, f64 y, f64) { return least_half(i.mode[0], i.mode[1], x, y); }))
    RUN("hmnmx2.bf16", halves<Brain16 COMMA 2>(w, i, m, [&](f64 x, f64 y, f64) { return least_half(i.mode[0], i.mode[1], x, y); }))
    WORDS("hadd2.f32", 1, (widened(x, i.sources[0].half)))
    RUN("i2f", from_integer(w, i, m)) RUN("f2i", to_integer(w, i, m)) RUN("f2f.f64.f32", widen(w, i, m))
    RUN("f2f.f32.f64", from_double(w, i, m, [](f64 x) { return number(f32(x)); }))
    RUN("f2f.f16.f64", from_double(w, i, m, [](f64 x) { return narrow<Float16>(x); }))
    WORDS("f2f.f16.f32", 1, narrow<Float16>(real(x), i.flags & 1)) WORDS("f2f.bf16.f32", 1, narrow<Brain16>(real(x), i.flags & 1))
    WORDS("f2fp.f16", 2, narrow<Float16>(real(x), i.flags & 1) << 16 | narrow<Float16>(real(y), i.flags & 1))
    WORDS("f2fp.bf16", 2, narrow<Brain16>(real(x), i.flags & 1) << 16 | narrow<Brain16>(real(y), i.flags & 1))
    WORDS("f2fp.e4m3", 3, z << 16 | narrow_to_byte<3>(real(x)) << 8 | narrow_to_byte<3>(real(y)))
    WORDS("f2fp.e5m2", 3, z << 16 | narrow_to_byte<2>(real(x)) << 8 | narrow_to_byte<2>(real(y)))
    WORDS("f2fp.f16.e4m3", 1, both_bytes<3>(x, i.sources[0].half)) WORDS("f2fp.f16.e5m2", 1, both_bytes<2>(x, i.sources[0].half))
    RUN("shfl", shuffle(w, i, m)) RUN("vote", vote(w, i, m)) RUN("match", match(w, i, m)) RUN("redux", reduce(w, i, m))
    RUN("r2ur", first_active(w, i, m)) RUN("p2r", predicates_to_register(w, i, m))
    RUN("r2p", register_to_predicates(w, i, m))
};
// clang-format on

} // namespace

sass::Table machine_code() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
