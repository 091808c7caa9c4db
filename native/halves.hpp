// The 16-bit floats: conversion to wider floats, and rounding from wider floats.
#pragma once

#include "floating.hpp"

namespace engine::LEVEL {

namespace {

// Convert float64 to float32, rounded to odd. A second rounding to 16 bits then gives the same result as one direct
// rounding.
inline f32 to_odd(f64 x) {
    f32 near = f32(x);
    u32 bits = as_bits<u32>(near);
    f64 back = f64(near);
    bool wrong = (back != x) & ((bits & 1) == 0) & (size_of(near) < INFINITE<f32>);
    return as_bits<f32>(wrong ? bits + (absolute(back) < absolute(x) ? 1u : ~0u) : bits);
}

// Round a float64 to odd, to the precision of float32. The number must be normal as a float32.
inline f64 cut_to_odd(f64 x) {
    constexpr u64 rest = 0x1FFFFFFF;
    u64 bits = as_bits<u64>(x);
    return as_bits<f64>((bits & ~rest) | (bits & rest ? rest + 1 : 0));
}

struct Float16 {
    static f32 near(f64 x) { return f32(cut_to_odd(x)); }
    static f32 wide(u32 half) {
        const u32 sign = (half & 0x8000) << 16, size = half & 0x7FFF;
        u32 bits = (size << 13) + (size >= 0x7C00 ? 0x70000000u : 0x38000000u);
        bits = size < 0x400 ? as_bits<u32>(f32(i32(size)) * 0x1p-24f) : bits;
        return as_bits<f32>(sign | bits);
    }
    // Round to float16; x must not be NaN.
    static u32 rounded(f32 x, i32) {
        const u32 bits = as_bits<u32>(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
        u32 half = (size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13;
        const u32 tiny = as_bits<u32>(as_bits<f32>(size) + 0.5f) - as_bits<u32>(0.5f);
        half = size < 0x38800000 ? tiny : half;
        half = size >= 0x477FF000 ? 0x7C00 : half;
        return sign | half;
    }
};

struct Brain16 {
    // Numbers below the smallest normal number are rounded here, to multiples of the smallest positive number of
    // bfloat16.
    static f32 near(f64 x) {
        constexpr f64 shift = 0x1.8p-81;
        f64 size = absolute(x), odd = cut_to_odd(x), tiny = with_sign(sign_of(x), (size + shift) - shift);
        return f32(size < 0x1p-126 ? tiny : odd);
    }
    static f32 wide(u32 half) { return as_bits<f32>(half << 16); }
    static u32 rounded(f32 x, i32 mode) {
        const u32 bits = as_bits<u32>(x);
        if (mode == NEAREST)
            return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
        const bool up = ((bits & 0xFFFF) != 0) & (mode != ZERO) & (bits >> 31 == u32(mode == DOWN));
        return (bits >> 16) + up;
    }
};

} // namespace

} // namespace engine::LEVEL
