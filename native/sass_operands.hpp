// Machine code: the operands of an instruction for 32 lanes, and functions that apply an operation to them.
#pragma once

#include "floating.hpp"
#include "sass.hpp"

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

} // namespace

} // namespace engine::LEVEL
