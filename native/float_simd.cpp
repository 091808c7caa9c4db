// Arithmetic and comparisons of float32 and float64.
#include "floating.hpp"

#include <cmath>

namespace engine::LEVEL {

namespace {

// Return x * y + z, rounded once. If both z and x are NaN, the result is the NaN of z.
template <class T> inline T fused(T x, T y, T z) {
    T sum;
    if constexpr (sizeof(T) == 8)
        sum = __builtin_fma(x, y, z);
    else
        sum = __builtin_fmaf(x, y, z);
    return result(sum, z != z ? z : x, y);
}

template <class T> inline T root(T x) {
    if constexpr (sizeof(T) == 8)
        return __builtin_sqrt(x);
    else
        return __builtin_sqrtf(x);
}

// Prepare an operand of sine or cosine: infinity becomes the NaN that the NumPy engine returns for it.
inline f64 finite_or_nan(f64 x) { return size_of(x) == INFINITE<f64> ? nan_of<f64>() : x; }

// Keep only the upper 32 bits of a float64, because rcp.approx.ftz.f64 and rsqrt.approx.ftz.f64 read and write only
// these.
inline f64 upper(f64 x) { return as_bits<f64>(as_bits<u64>(x) & 0xFFFFFFFF00000000u); }

// Compare in the mode of the flags, because some comparisons treat denormal operands as zeros.
template <class T, class F> void compared(Block &block, const Op &op, F holds) {
    Mode mode(op.flags);
    if (has_modes(block, op))
        test<T>(block, op, holds);
}

// clang-format off
#define COMPARED(NAME, T, E) {NAME, [](Block &b, const Op &o) { compared<T>(b, o, [](T x, T y) { return E; }); }},

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
    COMPARED("setp.num." #N, T, (x == x) & (y == y)) COMPARED("setp.nan." #N, T, (x != x) | (y != y))

const Operation OPERATIONS[] = {
    FLOATS(f32, f32) FLOATS(f64, f64)
    R1("sin.f32", f32, f32, result(f32(std::sin(finite_or_nan(f64(x)))), x))
    R1("cos.f32", f32, f32, result(f32(std::cos(finite_or_nan(f64(x)))), x))
    R1("ex2.f32", f32, f32, result(f32(std::exp2(f64(x))), x)) R1("lg2.f32", f32, f32, result(f32(std::log2(f64(x))), x))
    R1("tanh.f32", f32, f32, result(f32(std::tanh(f64(x))), x))
    ONE("rcp.upper.f64", f64, f64, upper(flushed(1 / flushed(upper(x)))))
    ONE("rsqrt.upper.f64", f64, f64, upper(flushed(1 / root(flushed(upper(x))))))
    TWO("odd.f64", f64, f64, f64, sum_to_odd(x, y))
};
// clang-format on

} // namespace

Table floats() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
