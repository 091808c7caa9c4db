// Loops over the lanes of warps, for arithmetic. Files named *_simd.cpp are compiled once for each set of vector
// instructions, so everything in this header has internal linkage: each compiled file has its own copy.
#pragma once

#include "engine.hpp"

#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#ifndef LEVEL
#define LEVEL base
#endif

namespace engine::LEVEL {

namespace {

// Flags of floating-point operations. The lowest two bits hold the rounding mode.
enum : i32 {
    NEAREST,
    ZERO,
    DOWN,
    UP,
    ROUNDING = 3,
    FLUSH = 4,
    SATURATE = 8,
    RELU = 16,
    PASS_NAN = 32,
    BY_SIZE = 64,
    SIGN_BY_XOR = 128
};

template <class T> using Word = std::conditional_t<sizeof(T) == 8, u64, u32>;

// A table with the bit of each lane. With a table in place of a shift, compilers vectorize loops over lanes.
template <class W> struct Bits {
    W of[LANES];
    constexpr Bits() : of() {
        for (int lane = 0; lane < LANES; lane++)
            of[lane] = W(1) << lane;
    }
};
alignas(64) constexpr Bits<u32> BITS32;
alignas(64) constexpr Bits<u64> BITS64;

template <class T> inline Word<T> bit(int lane) {
    if constexpr (sizeof(T) == 8)
        return BITS64.of[lane];
    else
        return BITS32.of[lane];
}

template <class D, class S> inline D as_bits(S value) {
    static_assert(sizeof(D) == sizeof(S));
    D bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits;
}

// Copy only the lanes in the mask.
template <class T> inline void merge(T *into, const T *from, u32 mask) {
    if (mask == ALL) {
        __builtin_memcpy(into, from, LANES * sizeof(T));
        return;
    }
    using U = std::conditional_t<sizeof(T) == 8, u64, std::conditional_t<sizeof(T) == 4, u32, T>>;
    U *to = reinterpret_cast<U *>(into);
    const U *source = reinterpret_cast<const U *>(from);
#pragma GCC ivdep
    for (int lane = 0; lane < LANES; lane++)
        to[lane] = mask & bit<T>(lane) ? source[lane] : to[lane];
}

// While this object exists, the processor rounds and treats denormal operands as the flags say. Denormal results are
// set to zero later, by `finish`: the processor would also flush some results that round up to the smallest normal
// number.
class Mode {
  public:
    explicit Mode(i32 flags) : changed(flags & (ROUNDING | FLUSH)) {
#if defined(__SSE2__)
        if (!changed)
            return;
        old = _mm_getcsr();
        const u32 modes[] = {0x0000, 0x6000, 0x2000, 0x4000}; // indexed by the rounding mode: nearest, zero, down, up
        _mm_setcsr((old & ~0x6000u) | modes[flags & ROUNDING] | (flags & FLUSH ? 0x40 : 0));
        asm volatile("" ::: "memory");
#endif
    }
    ~Mode() {
#if defined(__SSE2__)
        if (!changed)
            return;
        asm volatile("" ::: "memory");
        _mm_setcsr(old);
#endif
    }
    Mode(const Mode &) = delete;
    Mode &operator=(const Mode &) = delete;

  private:
    const i32 changed;
    u32 old = 0;
};

// Return whether this processor supports the rounding and the flushing that the flags say.
inline bool has_modes(const Block &block, const Op &op) {
#if defined(__SSE2__)
    (void)block, (void)op;
#else
    if (op.flags & (ROUNDING | FLUSH)) {
        block.suspect("this machine's rounding modes are not used", op);
        return false;
    }
#endif
    return true;
}

template <class T> inline T flushed(T x) {
    using U = Word<T>;
    constexpr U sign = U(1) << (8 * sizeof(T) - 1), least = sizeof(T) == 8 ? U(1) << 52 : U(1) << 23;
    U word = as_bits<U>(x);
    return as_bits<T>((word & ~sign) < least ? word & sign : word);
}

template <class T> inline T without_negative(T x) { return x <= 0 ? T(0) : x; } // NaN stays NaN
template <class T> inline T saturated(T x) {
    T positive = x > 0 ? x : T(0);
    return positive < 1 ? positive : T(1);
}

// Apply the flags to 32 results: set denormals to zero, set negative numbers to 0, clamp to the range 0 to 1.
template <class T> __attribute__((noinline)) void finish(T *results, i32 flags) {
    if (flags & FLUSH)
        for (int lane = 0; lane < LANES; lane++)
            results[lane] = flushed(results[lane]);
    if (flags & RELU)
        for (int lane = 0; lane < LANES; lane++)
            results[lane] = without_negative(results[lane]);
    if (flags & SATURATE)
        for (int lane = 0; lane < LANES; lane++)
            results[lane] = saturated(results[lane]);
}

// Compute a value of type D for each active lane. `function` gets the index of the lane in the block.
template <class D, class F> inline void compute(Block &block, const Op &op, F function) {
    D *into = block.at<D>(op.into[0]);
    for (int warp = 0; warp < block.warps; warp++) {
        const u32 mask = block.mask[warp];
        if (!mask)
            continue;
        alignas(64) D results[LANES];
#pragma GCC ivdep
        for (int lane = 0; lane < LANES; lane++)
            results[lane] = function(warp * LANES + lane);
        if constexpr (std::is_floating_point_v<D>)
            if (op.flags & (FLUSH | RELU | SATURATE))
                finish(results, op.flags);
        merge(into + warp * LANES, results, mask);
    }
}

template <class D, class A, class F> inline void unary(Block &block, const Op &op, F function) {
    const A *x = block.at<A>(op.from[0]);
    compute<D>(block, op, [=](int lane) { return function(x[lane]); });
}

template <class D, class A, class B, class F> inline void binary(Block &block, const Op &op, F function) {
    const A *x = block.at<A>(op.from[0]);
    const B *y = block.at<B>(op.from[1]);
    compute<D>(block, op, [=](int lane) { return function(x[lane], y[lane]); });
}

template <class D, class A, class B, class C, class F> inline void ternary(Block &block, const Op &op, F function) {
    const A *x = block.at<A>(op.from[0]);
    const B *y = block.at<B>(op.from[1]);
    const C *z = block.at<C>(op.from[2]);
    compute<D>(block, op, [=](int lane) { return function(x[lane], y[lane], z[lane]); });
}

// Return the mask of the lanes for which `holds` returns true. A: the type of the values that it compares.
template <class A, class F> inline u32 lanes_where(F holds) {
    Word<A> bits = 0;
    for (int lane = 0; lane < LANES; lane++)
        bits |= holds(lane) ? bit<A>(lane) : Word<A>(0);
    return u32(bits);
}

inline void put(u32 &into, u32 bits, u32 mask) { into = (into & ~mask) | (bits & mask); }

// Set a predicate register: for each active lane, the bit says whether a condition holds for the operands.
template <class A, class F> inline void test(Block &block, const Op &op, F holds) {
    u32 *into = block.predicate(op.into[0]);
    const A *x = block.at<A>(op.from[0]), *y = op.from[1] < 0 ? x : block.at<A>(op.from[1]);
    for (int warp = 0; warp < block.warps; warp++)
        if (const u32 mask = block.mask[warp]) {
            const A *a = x + warp * LANES, *b = y + warp * LANES;
            put(into[warp], lanes_where<A>([=](int lane) { return holds(a[lane], b[lane]); }), mask);
        }
}

// clang-format off
// Macros for entries of a table. Arguments: the name, the types of the result and of the operands, and an expression of
// x, y and z for the result; the expression may use the Op `o`.
#define ONE(NAME, D, A, E) {NAME, [](Block &b, const Op &o) { (void)o; unary<D, A>(b, o, [&](A x) { return D(E); }); }},
#define TWO(NAME, D, A, B, E) \
    {NAME, [](Block &b, const Op &o) { binary<D, A, B>(b, o, [&](A x, B y) { return D(E); }); }},
#define THREE(NAME, D, A, B, C, E) \
    {NAME, [](Block &b, const Op &o) { ternary<D, A, B, C>(b, o, [&](A x, B y, C z) { return D(E); }); }},
#define TEST(NAME, A, E) {NAME, [](Block &b, const Op &o) { test<A>(b, o, [](A x, A y) { (void)y; return E; }); }},
// clang-format on

} // namespace

} // namespace engine::LEVEL
