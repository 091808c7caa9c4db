// Conversions between integers and floats, and between types of different widths.
#include "floating.hpp"

#include <limits>

namespace engine::LEVEL {

namespace {

// Round to a whole number in the current rounding mode.
template <class T> inline T integral(T x) {
#if defined(__SSE4_1__) || !defined(__SSE2__)
    if constexpr (sizeof(T) == 8)
        return __builtin_rint(x);
    else
        return __builtin_rintf(x);
#else // without SSE4.1, because the code that compilers generate for rint without it always rounds to the nearest
    constexpr T without_fraction = sizeof(T) == 8 ? T(0x1p52) : T(0x1p23);
    const T shift = with_sign(sign_of(x), without_fraction), rounded = with_sign(sign_of(x), (x + shift) - shift);
    return absolute(x) < without_fraction ? rounded : x + T(0);
#endif
}

// Round in the current rounding mode, and clamp to the range of the type. NaN is converted as PTX ISA 9.7.9 (cvt) says.
template <class D, class A> inline D whole(A x) {
    using L = std::numeric_limits<D>;
    constexpr f64 low = f64(L::min()), limit = sizeof(D) == 8 ? (L::is_signed ? 0x1p63 : 0x1p64) : f64(L::max()) + 1;
    constexpr D of_nan = sizeof(A) < 8 && sizeof(D) < 8 ? D(0) : L::is_signed ? L::min() : D(L::max() / 2 + 1);
    const f64 real = integral(f64(x)), inside = (real >= low) & (real < limit) ? real : 0.0;
    D integer;
    if constexpr (sizeof(D) == 8)
        integer = D(inside);
    else if constexpr (std::is_same_v<D, u32>)
        integer = D(i64(inside));
    else
        integer = D(i32(inside));
    integer = real >= limit ? L::max() : integer;
    integer = real < low ? L::min() : integer;
    return real != real ? of_nan : integer;
}

// Return x, clamped to the range of an integer type. flags: the number of bits of this type, plus 256 if it is signed.
inline i64 clamped(i64 x, i32 flags) {
    const int bits = flags & 255;
    const i64 high = flags & 256 ? i64((u64(1) << (bits - 1)) - 1) : bits > 62 ? INT64_MAX : (i64(1) << bits) - 1;
    const i64 low = flags & 256 ? -high - 1 : 0;
    return x < low ? low : x > high ? high : x;
}
inline u64 clamped(u64 x, i32 flags) {
    const u64 high = ~u64(0) >> (flags & 256 ? 65 - (flags & 255) : 64 - (flags & 255));
    return x < high ? x : high;
}

inline u32 to_tf32(u32 x, bool to_even) {
    u32 step = to_even ? 0xFFF + (x >> 13 & 1) : 0x1000;
    x = to_even && (x & 0x7FFFFFFF) > 0x7F800000 ? 0x7FFFFFFF : x;
    return ((x & 0x7F800000) != 0x7F800000 ? x + step : x) & 0xFFFFE000;
}

// Return the low `length` bits of x. The other bits are copies of the highest of these bits or, if T is unsigned,
// zeros.
template <class T> inline T extended(T x, u32 length) {
    u64 count = length < 32 ? length : 32, kept = u64(u32(x)) & ((u64(1) << count) - 1);
    bool negative = std::is_signed_v<T> && count && kept >> (count - 1) & 1;
    return T(u32(negative ? kept - (u64(1) << count) : kept));
}

// clang-format off
#define FROM_WHOLE(N, A) R1("cvt.f32." #N, f32, A, x) R1("cvt.f64." #N, f64, A, x)
#define TO_WHOLE(N, D) R1("cvt." #N ".f32", D, f32, (whole<D>(x))) R1("cvt." #N ".f64", D, f64, (whole<D>(x)))

const Operation OPERATIONS[] = {
    ONE("resize.u8.u16", u16, u8, x) ONE("resize.u8.u32", u32, u8, x) ONE("resize.u8.u64", u64, u8, x)
    ONE("resize.u16.u8", u8, u16, x) ONE("resize.u16.u32", u32, u16, x) ONE("resize.u16.u64", u64, u16, x)
    ONE("resize.u32.u8", u8, u32, x) ONE("resize.u32.u16", u16, u32, x) ONE("resize.u32.u64", u64, u32, x)
    ONE("resize.u64.u8", u8, u64, x) ONE("resize.u64.u16", u16, u64, x) ONE("resize.u64.u32", u32, u64, x)
    ONE("resize.s8.u16", u16, i8, x) ONE("resize.s8.u32", u32, i8, x) ONE("resize.s8.u64", u64, i8, x)
    ONE("resize.s16.u32", u32, i16, x) ONE("resize.s16.u64", u64, i16, x) ONE("resize.s32.u64", u64, i32, x)
    ONE("clamp.s64", i64, i64, clamped(x, o.flags)) ONE("clamp.u64", u64, u64, clamped(x, o.flags))
    FROM_WHOLE(s32, i32) FROM_WHOLE(u32, u32) FROM_WHOLE(s64, i64) FROM_WHOLE(u64, u64)
    TO_WHOLE(s8, i8) TO_WHOLE(u8, u8) TO_WHOLE(s16, i16) TO_WHOLE(u16, u16)
    TO_WHOLE(s32, i32) TO_WHOLE(u32, u32) TO_WHOLE(s64, i64) TO_WHOLE(u64, u64)
    R1("cvt.f64.f32", f64, f32, x) R1("cvt.f32.f64", f32, f64, x)
    R1("round.f32", f32, f32, result(integral(x), x)) R1("round.f64", f64, f64, result(integral(x), x))
    ONE("finish.f32", f32, f32, result(x, x))
    ONE("finish.f64", f64, f64, x)
    ONE("tf32", u32, u32, to_tf32(x, o.flags))
    TWO("szext.u", u32, u32, u32, extended(x, y)) TWO("szext.s", u32, i32, u32, extended(x, y))
};
// clang-format on

} // namespace

Table conversions() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
