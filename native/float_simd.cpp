// float32 and float64.
#include "floating.hpp"

#include <cmath>

namespace engine::LEVEL {

namespace {

// One rounding. A NaN of z goes before that of x.
template <class T> inline T fused(T x, T y, T z) {
    T found;
    if constexpr (sizeof(T) == 8)
        found = __builtin_fma(x, y, z);
    else
        found = __builtin_fmaf(x, y, z);
    return result(found, z != z ? z : x, y);
}

template <class T> inline T root(T x) {
    if constexpr (sizeof(T) == 8)
        return __builtin_sqrt(x);
    else
        return __builtin_sqrtf(x);
}

// Sine and cosine of infinity are the NaN that the NumPy engine puts there.
inline f64 finite_or_nan(f64 x) { return size_of(x) == INFINITE<f64> ? nan_of<f64>() : x; }

// The upper halves of float64, as rcp.approx.ftz.f64 and its like read and write them.
inline f64 upper(f64 x) { return as_bits<f64>(as_bits<u64>(x) & 0xFFFFFFFF00000000u); }

// Comparisons: operands that are denormal may count as zeros.
template <class T, class F> void compared(Block &block, const Op &op, F holds) {
    Mode mode(op.flags);
    if (has_modes(block, op))
        test<T>(block, op, holds);
}

// Which lanes call the subroutine behind the kernel: see cudabench/simulator/count/detours.py.
inline u32 high(f64 x) { return u32(as_bits<u64>(x) >> 32); }
inline f32 as_float(u32 word) { return as_bits<f32>(word & 0x7FFFFFFF); }

inline bool divides_apart(f32 x, f32 y) {
    i32 above = as_bits<u32>(x) >> 23 & 255, below = as_bits<u32>(y) >> 23 & 255, apart = above - below;
    return (above < 25) | (above == 255) | (below < 2) | (below >= 252) | (apart > 126) | (apart < -124);
}
inline bool divides_apart(f64 x, f64 y) {
    f32 limit = as_bits<f32>(0x00100000u), least = as_bits<f32>(0x03600000u);
    bool plain = as_float(high(x / y)) > limit && size_of(as_float(high(y))) < INFINITE<f32>;
    return !(plain && !(as_float(high(x)) < least));
}
inline bool inverts_apart(f32 x) { return ((as_bits<u32>(x) + 0x01800000u) & 0x7F800000u) <= 0x01FFFFFFu; }
inline bool inverts_apart(f64 x) { return as_float(high(x) + 0x00300402u) < as_bits<f32>(0x00400402u); }
inline bool roots_apart(f32 x) { return as_bits<u32>(x) - 0x0D000000u > 0x727FFFFFu; }
inline bool roots_apart(f64 x) { return high(x) - 0x03500000u >= 0x7CA00000u; }
inline bool inverse_roots_apart(f64 x) { return high(x) - 0x00100000u >= 0x7FE00000u; }

template <class T, class F> void detour(Block &block, const Op &op, F apart) {
    const T *x = block.at<T>(op.from[0]), *y = op.from[1] < 0 ? x : block.at<T>(op.from[1]);
    for (int warp = 0; warp < block.warps; warp++)
        if (const u32 mask = block.mask[warp]) {
            const T *a = x + warp * LANES, *b = y + warp * LANES;
            const u32 called = lanes_where<T>([=](int lane) { return apart(a[lane], b[lane]); });
            if (called & mask)
                note_detour(block, op, called & mask, ~called & mask,
                            lanes_where<T>([=](int lane) { return a[lane] == 0; }));
        }
}

// clang-format off
#define COMPARED(NAME, T, E) {NAME, [](Block &b, const Op &o) { compared<T>(b, o, [](T x, T y) { return E; }); }},
#define DETOUR(NAME, T, E) {NAME, [](Block &b, const Op &o) { detour<T>(b, o, [](T x, T y) { (void)y; return E; }); }},

#define FLOATS(T, N) \
    R2("add." #N, T, result(x + y, x, y)) R2("sub." #N, T, result(x - y, x, y)) \
    R2("mul." #N, T, result(x * y, x, y)) R2("div." #N, T, result(x / y, y, x)) \
    R1("sqrt." #N, T, T, result(root(x), x)) R1("rcp." #N, T, T, result(1 / x, x)) \
    R1("rsqrt." #N, T, T, result(T(1 / root(f64(x))), x)) \
    ONE("abs." #N, T, T, result(absolute(x), x)) ONE("neg." #N, T, T, result(negative(x), x)) \
    TWO("copysign." #N, T, T, T, with_sign(sign_of(x), y)) \
    TWO("min." #N, T, T, T, (extreme<T, true>(x, y, o.flags))) \
    TWO("max." #N, T, T, T, (extreme<T, false>(x, y, o.flags))) \
    {"fma." #N, [](Block &b, const Op &o) { \
        Mode mode(o.flags); \
        if (has_modes(b, o)) \
            ternary<T, T, T, T>(b, o, [](T x, T y, T z) { return fused(x, y, z); }); }}, \
    TEST("testp.finite." #N, T, size_of(x) < INFINITE<T>) TEST("testp.infinite." #N, T, size_of(x) == INFINITE<T>) \
    TEST("testp.number." #N, T, x == x) TEST("testp.notanumber." #N, T, x != x) \
    TEST("testp.normal." #N, T, (size_of(x) >= NORMAL<T>) & (size_of(x) < INFINITE<T>)) \
    TEST("testp.subnormal." #N, T, (size_of(x) < NORMAL<T>) & (size_of(x) != 0)) \
    COMPARED("setp.eq." #N, T, x == y) COMPARED("setp.ne." #N, T, (x < y) | (x > y)) \
    COMPARED("setp.lt." #N, T, x < y) COMPARED("setp.le." #N, T, x <= y) \
    COMPARED("setp.equ." #N, T, !((x < y) | (x > y))) COMPARED("setp.neu." #N, T, x != y) \
    COMPARED("setp.ltu." #N, T, !(x >= y)) COMPARED("setp.leu." #N, T, !(x > y)) \
    COMPARED("setp.num." #N, T, (x == x) & (y == y)) COMPARED("setp.nan." #N, T, (x != x) | (y != y)) \
    DETOUR("detour.div." #N, T, divides_apart(x, y)) DETOUR("detour.rcp." #N, T, inverts_apart(x)) \
    DETOUR("detour.sqrt." #N, T, roots_apart(x))

const Operation ALL_OF_THEM[] = {
    FLOATS(f32, f32) FLOATS(f64, f64)
    R1("sin.f32", f32, f32, result(f32(std::sin(finite_or_nan(f64(x)))), x))
    R1("cos.f32", f32, f32, result(f32(std::cos(finite_or_nan(f64(x)))), x))
    R1("ex2.f32", f32, f32, result(f32(std::exp2(f64(x))), x)) R1("lg2.f32", f32, f32, result(f32(std::log2(f64(x))), x))
    R1("tanh.f32", f32, f32, result(f32(std::tanh(f64(x))), x))
    DETOUR("detour.rsqrt.f64", f64, inverse_roots_apart(x))
    ONE("rcp.upper.f64", f64, f64, upper(flushed(1 / flushed(upper(x)))))
    ONE("rsqrt.upper.f64", f64, f64, upper(flushed(1 / root(flushed(upper(x))))))
    TWO("odd.f64", f64, f64, f64, sum_to_odd(x, y))
};
// clang-format on

} // namespace

Table floats() { return {ALL_OF_THEM, sizeof ALL_OF_THEM / sizeof *ALL_OF_THEM}; }

} // namespace engine::LEVEL
