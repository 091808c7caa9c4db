// Functions that the files of floating-point vector code share: signs, NaN, minimum and maximum, rounding.
#pragma once

#include "lanes.hpp"

namespace engine::LEVEL {

namespace {

template <class T> inline Word<T> size_of(T x) { return as_bits<Word<T>>(x) & (~Word<T>(0) >> 1); }
template <class T> inline Word<T> sign_of(T x) { return as_bits<Word<T>>(x) & ~(~Word<T>(0) >> 1); }
template <class T> inline T absolute(T x) { return as_bits<T>(size_of(x)); }
template <class T> inline T negative(T x) { return as_bits<T>(as_bits<Word<T>>(x) ^ ~(~Word<T>(0) >> 1)); }
template <class T> inline T with_sign(Word<T> sign, T x) { return as_bits<T>(sign | size_of(x)); }
template <class T> inline T nan_of() {
    return as_bits<T>(sizeof(T) == 8 ? Word<T>(0x7FF8000000000000) : Word<T>(0x7FC00000));
}
template <class T> inline T quiet(T x) { return as_bits<T>(as_bits<Word<T>>(x) | as_bits<Word<T>>(nan_of<T>())); }
// Return the result of an operation. If it is NaN, return the NaN that the hardware gives (measured on an H100): for
// float32 always the same NaN, for float64 the last operand that is NaN, made quiet.
template <class T> inline T result(T value, T first, T last) {
    if constexpr (sizeof(T) == 4)
        return value != value ? as_bits<T>(Word<T>(0x7FFFFFFF)) : value;
    T nan = first != first ? quiet(first) : negative(nan_of<T>());
    nan = last != last ? quiet(last) : nan;
    return value != value ? nan : value;
}
template <class T> inline T result(T value, T operand) { return result(value, operand, operand); }
template <class T> constexpr Word<T> INFINITE = sizeof(T) == 8 ? Word<T>(0x7FF0000000000000) : Word<T>(0x7F800000);
template <class T> constexpr Word<T> NORMAL = sizeof(T) == 8 ? Word<T>(1) << 52 : Word<T>(1) << 23;

// Return the minimum or maximum. If one operand is NaN, the result is the other one; -0 is less than +0.
template <class T, bool LEAST> inline T extreme(T x, T y, i32 flags) {
    const T first = x, second = y;
    if (flags & BY_SIZE)
        x = absolute(x), y = absolute(y);
    const bool zeros = (x == 0) & (y == 0), signed_x = sign_of(x) != 0, ahead = LEAST ? x < y : y < x;
    T value = ahead ? x : y;
    value = x == y ? x : value;
    value = zeros ? (signed_x == LEAST ? x : y) : value;
    value = x != x ? y : value;
    value = y != y ? x : value;
    if (flags & SIGN_BY_XOR)
        value = with_sign(sign_of(first) ^ sign_of(second), value);
    if (flags & PASS_NAN)
        value = (first != first) | (second != second) ? nan_of<T>() : value;
    return result(value, first, second);
}

// Return x + y, rounded to odd: if the sum is then rounded to a narrower type, the result is as if the exact sum had
// been rounded only once.
inline f64 sum_to_odd(f64 x, f64 y) {
    f64 total = x + y, part = total - x, error = (x - (total - part)) + (y - part);
    u64 bits = as_bits<u64>(total), opposite = (bits ^ as_bits<u64>(error)) >> 63;
    u64 step = (1 - 2 * opposite) & ((bits & 1) - 1); // one step toward the exact sum if the last bit is even
    step = error != 0 ? step : 0;
    return as_bits<f64>(size_of(total) < INFINITE<f64> ? bits + step : bits);
}

// Run an operation with the rounding mode and the treatment of denormals that its flags say.
template <class D, class A, class F> void rounded_one(Block &block, const Op &op, F function) {
    Mode mode(op.flags);
    if (has_modes(block, op))
        unary<D, A>(block, op, function);
}
template <class T, class F> void rounded_two(Block &block, const Op &op, F function) {
    Mode mode(op.flags);
    if (has_modes(block, op))
        binary<T, T, T>(block, op, function);
}

// clang-format off
#define R1(NAME, D, A, E) {NAME, [](Block &b, const Op &o) { rounded_one<D, A>(b, o, [](A x) { return D(E); }); }},
#define R2(NAME, T, E) {NAME, [](Block &b, const Op &o) { rounded_two<T>(b, o, [](T x, T y) { return T(E); }); }},
// clang-format on

} // namespace

} // namespace engine::LEVEL
