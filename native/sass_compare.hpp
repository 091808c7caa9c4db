// Machine code: comparisons, whose results go to predicates or registers.
#pragma once

#include "sass_operands.hpp"

#include <cmath>

namespace engine::LEVEL {

namespace {

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

} // namespace

} // namespace engine::LEVEL
