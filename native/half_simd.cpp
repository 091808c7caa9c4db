// Arithmetic of float16 and bfloat16, for single numbers and pairs. Results are computed in float64 and rounded once.
#include "halves.hpp"

#include <cmath>

namespace engine::LEVEL {

namespace {

// float16 with directed rounding: the number is truncated, and then increased if the mode rounds away from zero.
struct DirectedFloat16 : Float16 {
    static u32 rounded(f32 x, i32 mode) {
        const u32 bits = as_bits<u32>(x), sign = bits >> 16 & 0x8000, size = bits & 0x7FFFFFFF;
        const u32 away = mode != ZERO && (sign != 0) == (mode == DOWN);
        const f32 tiny = as_bits<f32>(size) * 0x1p24f;
        u32 half = ((size - 0x38000000) >> 13) + ((size & 0x1FFF) != 0 ? away : 0);
        if (size < 0x38800000)
            half = u32(i32(tiny)) + (f32(i32(tiny)) != tiny ? away : 0);
        else if (size >= 0x47800000)
            half = size == 0x7F800000 || away ? 0x7C00 : 0x7BFF;
        return sign | half;
    }
};

// Replace a number outside the range of float16 by a smaller one, so that it does not overflow float32. It still
// overflows float16.
inline f64 in_reach(f64 x) {
    return absolute(x) > 0x1p17 && size_of(x) < INFINITE<f64> ? with_sign(sign_of(x), 0x1p17) : x;
}

// Convert a float64 that is NaN to float16.
inline u32 nan16(f64 x) { return u32(as_bits<u64>(x) >> 48 & 0x8000) | 0x7E00 | u32(as_bits<u64>(x) >> 42 & 0x3FF); }

// Convert float16 to float64. A NaN keeps its upper bits and becomes quiet.
inline f64 wide64(u16 half) { return result(f64(Float16::wide(half)), f64(Float16::wide(half))); }

// Convert a float to 16 bits, for the instruction cvt. KEEPS_NAN: whether a NaN keeps its bits; if not, it becomes
// 0x7FFF.
template <class K, class A, bool KEEPS_NAN> inline u16 converted(A x, i32 flags) {
    x = flags & RELU ? without_negative(x) : x;
    x = flags & SATURATE ? saturated(x) : x;
    u32 bits;
    if constexpr (sizeof(A) == 8)
        bits = K::rounded(to_odd(x), flags & ROUNDING);
    else
        bits = K::rounded(x, flags & ROUNDING);
    return u16(x == x ? bits : KEEPS_NAN ? nan16(f64(x)) : 0x7FFFu);
}

// Convert the 16-bit floats of 32 registers to float64. If registers hold pairs, the 32 lower halves come first, then
// the upper halves.
template <class K, class U> __attribute__((noinline)) void widen(f64 *into, const U *from) {
    constexpr int parts = sizeof(U) / sizeof(u16);
    alignas(64) f32 floats[parts * LANES];
    for (int part = 0; part < parts; part++)
        for (int lane = 0; lane < LANES; lane++)
            floats[part * LANES + lane] = K::wide(u32(from[lane]) >> (16 * part) & 0xFFFF);
    for (int place = 0; place < parts * LANES; place++)
        into[place] = f64(floats[place]);
}

template <class K, class U> __attribute__((noinline)) void narrow(U *into, f64 *from, i32 flags) {
    constexpr int count = sizeof(U) / sizeof(u16) * LANES;
    finish(from, flags & (RELU | SATURATE));
    if (count > LANES)
        finish(from + LANES, flags & (RELU | SATURATE));
    alignas(64) f32 near[count];
    alignas(64) u32 results[count];
    for (int place = 0; place < count; place++)
        near[place] = K::near(from[place]);
    for (int place = 0; place < count; place++) {
        u32 bits = K::rounded(near[place], NEAREST);
        results[place] = near[place] != near[place] ? 0x7FFFu : bits;
    }
    for (int lane = 0; lane < LANES; lane++)
        into[lane] = count > LANES ? U(results[lane] | results[count - LANES + lane] << 16) : U(results[lane]);
}

template <class K, bool PAIR, class F> void halves(Block &block, const Op &op, int operands, F function) {
    using U = std::conditional_t<PAIR, u32, u16>;
    constexpr int count = (PAIR ? 2 : 1) * LANES;
    const i32 flags = op.flags;
    for (int warp = 0; warp < block.warps; warp++)
        if (const u32 mask = block.mask[warp]) {
            alignas(64) f64 inputs[3][count];
            alignas(64) f64 results[count];
            alignas(64) U bits[LANES];
            for (int operand = 0; operand < operands; operand++)
                widen<K>(inputs[operand], block.at<U>(op.from[operand]) + warp * LANES);
            for (int place = 0; place < count; place++)
                results[place] = function(inputs[0][place], inputs[1][place], inputs[2][place], flags);
            narrow<K>(bits, results, flags);
            merge(block.at<U>(op.into[0]) + warp * LANES, bits, mask);
        }
}

// clang-format off
#define HALF(NAME, TYPE, K, PAIR, COUNT, E) \
    {NAME TYPE, [](Block &b, const Op &o) { \
        halves<K, PAIR>(b, o, COUNT, [](f64 x, f64 y, f64 z, i32 flags) { \
            (void)x, (void)y, (void)z, (void)flags; \
            return E; \
        }); }},
#define EACH_TYPE(NAME, COUNT, E) \
    HALF(NAME, ".f16", Float16, false, COUNT, E) HALF(NAME, ".bf16", Brain16, false, COUNT, E) \
    HALF(NAME, ".f16x2", Float16, true, COUNT, E) HALF(NAME, ".bf16x2", Brain16, true, COUNT, E)

const Operation OPERATIONS[] = {
    EACH_TYPE("add", 2, x + y) EACH_TYPE("sub", 2, x - y) EACH_TYPE("mul", 2, x * y)
    EACH_TYPE("fma", 3, sum_to_odd(x * y, z)) EACH_TYPE("abs", 1, absolute(x)) EACH_TYPE("neg", 1, negative(x))
    EACH_TYPE("min", 2, (extreme<f64, true>(x, y, flags))) EACH_TYPE("max", 2, (extreme<f64, false>(x, y, flags)))
    EACH_TYPE("ex2", 1, std::exp2(x)) EACH_TYPE("tanh", 1, std::tanh(x))
    ONE("cvt.f32.f16", f32, u16, result(Float16::wide(x), 0.0f)) ONE("cvt.f64.f16", f64, u16, wide64(x))
    ONE("cvt.f32.bf16", f32, u16, Brain16::wide(x))
    ONE("cvt.f16.f32", u16, f32, (converted<Float16, f32, false>(x, o.flags)))
    ONE("cvt.f16.f64", u16, f64, (converted<Float16, f64, true>(x, o.flags)))
    ONE("directed.f16.f32", u16, f32, (converted<DirectedFloat16, f32, false>(x, o.flags)))
    ONE("directed.f16.f64", u16, f64, (converted<DirectedFloat16, f64, true>(in_reach(x), o.flags)))
    ONE("cvt.bf16.f32", u16, f32, (converted<Brain16, f32, false>(x, o.flags)))
    ONE("cvt.bf16.f64", u16, f64, (converted<Brain16, f64, false>(x, o.flags)))
};
// clang-format on

} // namespace

Table halves() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
