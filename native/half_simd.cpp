// float16 and bfloat16: computed in float64 and rounded once, singly and in pairs.
#include "floating.hpp"

#include <cmath>

namespace engine::LEVEL {

namespace {

// A float64 as a float32 that is rounded to odd, so that a second rounding does no harm.
inline f32 to_odd(f64 x) {
    f32 near = f32(x);
    u32 bits = as_bits<u32>(near);
    f64 back = f64(near);
    bool wrong = (back != x) & ((bits & 1) == 0) & (size_of(near) < INFINITE<f32>);
    return as_bits<f32>(wrong ? bits + (absolute(back) < absolute(x) ? 1u : ~0u) : bits);
}

struct Float16 {
    static f32 wide(u16 half) {
        const u32 sign = u32(half & 0x8000) << 16, size = half & 0x7FFF;
        u32 found = (size << 13) + (size >= 0x7C00 ? 0x70000000u : 0x38000000u);
        found = size < 0x400 ? as_bits<u32>(f32(i32(size)) * 0x1p-24f) : found;
        return as_bits<f32>(sign | found);
    }
    // Of a float32 that is not NaN.
    static u16 rounded(f32 x, i32) {
        const u32 bits = as_bits<u32>(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
        u32 found = (size + 0xFFF + (size >> 13 & 1) - 0x38000000) >> 13;
        const u32 tiny = as_bits<u32>(as_bits<f32>(size) + 0.5f) - as_bits<u32>(0.5f);
        found = size < 0x38800000 ? tiny : found;
        found = size >= 0x477FF000 ? 0x7C00 : found;
        return u16(sign | found);
    }
};

struct Brain16 {
    static f32 wide(u16 half) { return as_bits<f32>(u32(half) << 16); }
    static u16 rounded(f32 x, i32 mode) {
        const u32 bits = as_bits<u32>(x);
        if (mode == NEAREST)
            return u16((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        const bool up = (bits & 0xFFFF) && mode != ZERO && (bits >> 31 == (mode == DOWN));
        return u16((bits >> 16) + up);
    }
};

template <class K> inline u16 narrow(f64 x, i32 flags) {
    x = flags & RELU ? without_negative(x) : x;
    x = flags & SATURATE ? saturated(x) : x;
    u16 found = K::rounded(to_odd(x), NEAREST);
    return x != x ? 0x7FFF : found;
}

// The bits of a NaN as NumPy makes them of a wider one.
inline u16 cut_nan(u64 fraction, bool negative) {
    return u16((negative ? 0x8000 : 0) | (0x7C00 + (fraction ? fraction : 1)));
}
inline u16 nan16(f32 x) { return cut_nan(as_bits<u32>(x) >> 13 & 0x3FF, sign_of(x)); }
inline u16 nan16(f64 x) { return cut_nan(as_bits<u64>(x) >> 42 & 0x3FF, sign_of(x)); }

// A float16 NaN as NumPy widens it to float64: it stays a signalling one.
inline f64 wide64(u16 half) {
    const u64 nan = u64(half & 0x8000) << 48 | u64(0x7FF) << 52 | u64(half & 0x3FF) << 42;
    return (half & 0x7FFF) > 0x7C00 ? as_bits<f64>(nan) : f64(Float16::wide(half));
}

// cvt to 16 bits; NAN_OF_ITS_OWN: whether a NaN keeps its bits; else it becomes 0x7FFF.
template <class K, class A, bool NAN_OF_ITS_OWN> inline u16 converted(A x, i32 flags) {
    x = flags & RELU ? without_negative(x) : x;
    x = flags & SATURATE ? saturated(x) : x;
    u16 found;
    if constexpr (sizeof(A) == 8)
        found = K::rounded(to_odd(x), flags & ROUNDING);
    else
        found = K::rounded(x, flags & ROUNDING);
    return x == x ? found : NAN_OF_ITS_OWN ? nan16(x) : 0x7FFF;
}

template <class K, bool PAIR, class F> void halves(Block &block, const Op &op, int operands, F function) {
    using U = std::conditional_t<PAIR, u32, u16>;
    const U *x = block.at<U>(op.from[0]), *y = operands > 1 ? block.at<U>(op.from[1]) : x;
    const U *z = operands > 2 ? block.at<U>(op.from[2]) : x;
    const i32 flags = op.flags;
    compute<U>(block, op, [=](int lane) {
        auto part = [=](int shift) {
            auto wide = [=](U bits) { return f64(K::wide(u16(bits >> shift))); };
            return narrow<K>(function(wide(x[lane]), wide(y[lane]), wide(z[lane]), flags), flags);
        };
        if constexpr (PAIR)
            return u32(part(0)) | u32(part(16)) << 16;
        else
            return part(0);
    });
}

#define HALF(NAME, TYPE, K, PAIR, COUNT, E) \
    {NAME TYPE, [](Block &b, const Op &o) { \
        halves<K, PAIR>(b, o, COUNT, [](f64 x, f64 y, f64 z, i32 flags) { (void)x, (void)y, (void)z, (void)flags; return E; }); }},
#define EACH_TYPE(NAME, COUNT, E) \
    HALF(NAME, ".f16", Float16, false, COUNT, E) HALF(NAME, ".bf16", Brain16, false, COUNT, E) \
    HALF(NAME, ".f16x2", Float16, true, COUNT, E) HALF(NAME, ".bf16x2", Brain16, true, COUNT, E)

const Operation ALL_OF_THEM[] = {
    EACH_TYPE("add", 2, x + y) EACH_TYPE("sub", 2, x - y) EACH_TYPE("mul", 2, x * y)
    EACH_TYPE("fma", 3, sum_to_odd(x * y, z)) EACH_TYPE("abs", 1, absolute(x)) EACH_TYPE("neg", 1, negative(x))
    EACH_TYPE("min", 2, (extreme<f64, true>(x, y, flags))) EACH_TYPE("max", 2, (extreme<f64, false>(x, y, flags)))
    EACH_TYPE("ex2", 1, std::exp2(x)) EACH_TYPE("tanh", 1, std::tanh(x))
    ONE("cvt.f32.f16", f32, u16, Float16::wide(x)) ONE("cvt.f64.f16", f64, u16, wide64(x)) ONE("cvt.f32.bf16", f32, u16, Brain16::wide(x))
    ONE("cvt.f16.f32", u16, f32, (converted<Float16, f32, true>(x, o.flags)))
    ONE("cvt.f16.f64", u16, f64, (converted<Float16, f64, true>(x, o.flags)))
    ONE("cvt.bf16.f32", u16, f32, (converted<Brain16, f32, false>(x, o.flags)))
    ONE("cvt.bf16.f64", u16, f64, (converted<Brain16, f64, false>(x, o.flags)))
};

} // namespace

Table halves() { return {ALL_OF_THEM, sizeof ALL_OF_THEM / sizeof *ALL_OF_THEM}; }

} // namespace engine::LEVEL
