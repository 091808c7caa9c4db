// Machine code: operations on floats of 8 to 64 bits, and conversions.
#pragma once

#include "halves.hpp"
#include "sass_compare.hpp"

#include <algorithm>
#include <cmath>

namespace engine::LEVEL {

namespace {

inline u32 lesser_float(bool least, i32 flags, u32 x, u32 y) {
    if (flags & FLUSH)
        x = as_bits<u32>(flushed(real(x))), y = as_bits<u32>(flushed(real(y)));
    const f32 a = real(x), b = real(y);
    const u32 zeros = least ? x | y : x & y, picked = (a < b) == least ? x : y;
    return a != a ? (b != b ? 0x7FFFFFFFu : y) : b != b ? x : a == b ? zeros : picked;
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
    if (x != x)
        return nan ? x : y;
    if (y != y)
        return nan ? y : x;
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

} // namespace

} // namespace engine::LEVEL
