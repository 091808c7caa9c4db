// Moves, integers, logic, comparisons and selections.
#include "lanes.hpp"

namespace engine::LEVEL {

namespace {

// Division by zero gives all ones, and the remainder is then the dividend. The lowest integer divided by -1 gives the
// lowest integer. A 32-bit quotient is computed in float64 and truncated.
template <class T> inline T quotient(T x, T y) {
    using U = std::make_unsigned_t<T>;
    const bool zero = y == 0, minus = std::is_signed_v<T> && y == T(-1);
    const T safe = zero | minus ? T(1) : y;
    T value;
    if constexpr (sizeof(T) == 8)
        value = x / safe;
    else
        value = T(std::conditional_t<sizeof(T) == 4, T, i32>(f64(x) / f64(safe)));
    value = minus ? T(U(0) - U(x)) : value;
    return zero ? T(~T(0)) : value;
}

template <class T> inline T remainder_of(T x, T y) {
    using U = std::make_unsigned_t<T>;
    T value = T(U(x) - quotient<T>(x, y) * 1u * U(y));
    return y == 0 ? x : value;
}

template <class U> inline U high_product(U x, U y) {
    if constexpr (sizeof(U) == 8) {
        __extension__ using Wide = std::conditional_t<std::is_signed_v<U>, __int128, unsigned __int128>;
        return U((Wide(x) * Wide(y)) >> 64);
    } else {
        using Wide = std::conditional_t<std::is_signed_v<U>, i64, u64>;
        return U((Wide(x) * Wide(y)) >> (8 * sizeof(U)));
    }
}

template <class T> inline std::make_unsigned_t<T> distance(T x, T y) {
    using U = std::make_unsigned_t<T>;
    return x > y ? U(U(x) - U(y)) : U(U(y) - U(x));
}

template <class T> inline T left(T x, u32 steps) {
    constexpr u32 bits = 8 * sizeof(T);
    return steps < bits ? T(x << (steps & (bits - 1))) : T(0);
}

template <class T> inline T right(T x, u32 steps) {
    constexpr u32 bits = 8 * sizeof(T);
    if constexpr (std::is_signed_v<T>)
        return T(x >> (steps < bits ? steps : bits - 1));
    else
        return steps < bits ? T(x >> (steps & (bits - 1))) : T(0);
}

template <class U> inline u32 zeros_above(U x) {
    constexpr u32 bits = 8 * sizeof(U);
    return x ? u32(__builtin_clzll(x)) - (64 - bits) : bits;
}

template <class U> inline U reversed(U x) {
    constexpr u64 masks[] = {0x5555555555555555u, 0x3333333333333333u, 0x0F0F0F0F0F0F0F0Fu};
    for (int step = 0; step < 3; step++)
        x = U((x & U(masks[step])) << (1 << step)) | U((x >> (1 << step)) & U(masks[step]));
    return sizeof(U) == 8 ? U(__builtin_bswap64(x)) : U(__builtin_bswap32(u32(x)));
}

template <class T> inline T extracted(T x, u32 start, u32 length) {
    using U = std::make_unsigned_t<T>;
    constexpr u32 bits = 8 * sizeof(T);
    start &= 255, length &= 255;
    u32 above = start + length < bits ? bits - (start + length) : 0;
    T field = right(T(left(U(x), above)), above + start); // bits beyond the register are copies of the sign, too
    return length ? field : T(0);
}

template <class U> inline U inserted(U x, U y, u32 start, u32 length) {
    start &= 255, length &= 255;
    U field = left(U(~left(U(~U(0)), length)), start);
    return (y & ~field) | (left(x, start) & field);
}

template <class T> inline u32 highest(T x, bool shift_amount) {
    using U = std::make_unsigned_t<T>;
    constexpr u32 bits = 8 * sizeof(T);
    u32 zeros = zeros_above(U(std::is_signed_v<T> && x < 0 ? ~U(x) : U(x)));
    return zeros == bits ? ALL : shift_amount ? zeros : bits - 1 - zeros;
}

// Apply a logic function of three operands, given as a truth table, to each bit.
inline u32 logic(u32 x, u32 y, u32 z, i32 table) {
    auto when = [table](int place) { return 0u - u32(table >> place & 1); };
    auto pick = [](u32 by, u32 yes, u32 no) { return (by & yes) | (~by & no); };
    return pick(x, pick(y, pick(z, when(7), when(6)), pick(z, when(5), when(4))),
                pick(y, pick(z, when(3), when(2)), pick(z, when(1), when(0))));
}

// Shift a pair of words. flags: 1: shift left; 2: an amount above 32 counts as 32 (without it: amount modulo 32).
inline u32 funnel(u32 low, u32 high, u32 amount, i32 flags) {
    u64 steps = flags & 2 ? (amount < 32 ? amount : 32) : amount & 31, both = u64(high) << 32 | low;
    return u32(flags & 1 ? (both << steps) >> 32 : both >> steps);
}

inline u32 permuted(u32 x, u32 y, u32 control) {
    u64 both = u64(y) << 32 | x;
    u32 bytes = 0;
    for (int place = 0; place < 4; place++) {
        u32 selector = control >> (4 * place);
        u32 byte = u32(both >> ((selector & 7) * 8)) & 255;
        u32 copies = 0u - (byte >> 7);
        bytes |= ((selector & 8 ? copies : byte) & 255) << (8 * place);
    }
    return bytes;
}

// Convert the control operand of another mode of prmt to the one that gives the same result in the default mode. mode:
// see native/integers.py.
inline u32 control_of(u32 control, i32 mode) {
    u32 low = control & 3, converted = 0;
    for (u32 place = 0; place < 4; place++) {
        const u32 selectors[] = {low + place,
                                 (low - place) & 7,
                                 low,
                                 low > place ? low : place,
                                 low < place ? low : place,
                                 ((low & 1) << 1) + (place & 1)};
        converted |= selectors[mode] << (4 * place);
    }
    return converted;
}

// Dot product with accumulation. flags: 1: x is signed; 2: y is signed; 4: multiply 16-bit halves of x by bytes of y;
// 8: use the upper two bytes of y.
inline u32 dot(u32 x, u32 y, u32 z, i32 flags) {
    const int bits = flags & 4 ? 16 : 8, count = flags & 4 ? 2 : 4, upper = flags & 8 ? 2 : 0;
    for (int place = 0; place < count; place++) {
        u32 a = x >> (place * bits) << (32 - bits), b = y >> ((place + upper) * 8) << 24;
        z += u32(flags & 1 ? i32(a) >> (32 - bits) : i32(a >> (32 - bits))) *
             u32(flags & 2 ? i32(b) >> 24 : i32(b >> 24));
    }
    return z;
}

// Return the position of the n-th set bit, counted from the bit `base` upward or, if `offset` is negative, downward.
inline u32 nth_set(u32 mask, u32 base, i32 offset) {
    i64 remaining = offset == 0 ? 1 : offset < 0 ? -i64(offset) : offset;
    for (i64 step = 0; step < (offset == 0 ? 1 : LANES); step++) {
        const i64 place = offset < 0 ? i64(base) - step : i64(base) + step;
        if (place >= 0 && place < LANES && (mask >> place & 1) && --remaining == 0)
            return u32(place);
    }
    return ALL;
}

// Compute x + y + carry or, with flag 1, x - y - borrow. from[2] is the predicate of the carry in, into[1] that of the
// carry out; -1: none.
template <class U> void with_carry(Block &block, const Op &op) {
    const U *x = block.at<U>(op.from[0]), *y = block.at<U>(op.from[1]);
    const u32 *carry = op.from[2] < 0 ? nullptr : block.predicate(op.from[2]);
    const U flip = op.flags & 1 ? U(~U(0)) : U(0);
    const u32 first = op.flags & 1 ? ALL : 0;
    for (int warp = 0; warp < block.warps; warp++) {
        const u32 mask = block.mask[warp], in = carry ? carry[warp] : first;
        if (!mask)
            continue;
        alignas(64) U sums[LANES];
        alignas(64) U carries[LANES];
        for (int lane = 0; lane < LANES; lane++) {
            U a = x[warp * LANES + lane], sum = U(a + (y[warp * LANES + lane] ^ flip));
            sums[lane] = U(sum + (in & bit<U>(lane) ? 1 : 0));
            carries[lane] = U((sum < a) | (sums[lane] < sum));
        }
        if (op.into[1] >= 0)
            put(block.predicate(op.into[1])[warp], lanes_where<U>([&](int lane) { return carries[lane] != 0; }), mask);
        merge(block.at<U>(op.into[0]) + warp * LANES, sums, mask);
    }
}

// Select one of two values by a predicate; flag 1: the predicate is inverted.
template <class U> void select(Block &block, const Op &op) {
    const U *x = block.at<U>(op.from[0]), *y = block.at<U>(op.from[1]);
    const u32 *by = block.predicate(op.from[2]);
    for (int warp = 0; warp < block.warps; warp++)
        if (const u32 mask = block.mask[warp]) {
            alignas(64) U selected[LANES];
            __builtin_memcpy(selected, y + warp * LANES, sizeof selected);
            merge(selected, x + warp * LANES, op.flags & 1 ? ~by[warp] : by[warp]);
            merge(block.at<U>(op.into[0]) + warp * LANES, selected, mask);
        }
}

// Combine two predicates. Flag 1 inverts the first one, flag 2 the second one.
template <class F> inline void words(Block &block, const Op &op, F combine) {
    const u32 *x = block.predicate(op.from[0]), *y = op.from[1] < 0 ? x : block.predicate(op.from[1]);
    const u32 flip_x = op.flags & 1 ? ALL : 0, flip_y = op.flags & 2 ? ALL : 0;
    for (int warp = 0; warp < block.warps; warp++)
        put(block.predicate(op.into[0])[warp], combine(x[warp] ^ flip_x, y[warp] ^ flip_y), block.mask[warp]);
}

// These two functions split a wide register into narrow registers, the lowest part first, and join them again.
template <class W, class N> void unpack(Block &block, const Op &op) {
    const W *from = block.at<W>(op.from[0]);
    for (int part = 0; part < int(sizeof(W) / sizeof(N)) && part < 4; part++)
        for (int warp = 0; warp < block.warps && op.into[part] >= 0; warp++)
            if (const u32 mask = block.mask[warp]) {
                alignas(64) N narrow[LANES];
                for (int lane = 0; lane < LANES; lane++)
                    narrow[lane] = N(from[warp * LANES + lane] >> (part * 8 * int(sizeof(N))));
                merge(block.at<N>(op.into[part]) + warp * LANES, narrow, mask);
            }
}

template <class W, class N> void pack(Block &block, const Op &op) {
    constexpr int parts = sizeof(W) / sizeof(N);
    const N *from[parts];
    for (int part = 0; part < parts; part++)
        from[part] = block.at<N>(op.from[part]);
    compute<W>(block, op, [&](int lane) {
        W joined = 0;
        for (int part = 0; part < parts; part++)
            joined |= W(W(from[part][lane]) << (part * 8 * int(sizeof(N))));
        return joined;
    });
}

// Stop the launch if a register was not written before it is read: it then holds a special bit pattern, see
// cudabench/simulator/values.py.
template <class U> void defined(Block &block, const Op &op) {
    const U *from = block.at<U>(op.from[0]);
    u32 undefined = 0;
    for (int warp = 0; warp < block.warps; warp++)
        if (const u32 mask = block.mask[warp])
            undefined |=
                mask & lanes_where<U>([=](int lane) { return from[warp * LANES + lane] == U(0xFFADFFADFFADFFADu); });
    if (undefined)
        block.suspect("a register is read that nothing has written", op);
}

// Stop the launch if a divisor is zero.
template <class U> void nonzero(Block &block, const Op &op) {
    const U *divisor = block.at<U>(op.from[0]);
    u32 zero = 0;
    for (int warp = 0; warp < block.warps; warp++)
        if (const u32 mask = block.mask[warp])
            zero |= mask & lanes_where<U>([=](int lane) { return divisor[warp * LANES + lane] == 0; });
    if (zero)
        block.suspect("an integer is divided by zero", op);
}

// Set a predicate: whether an address is in the window of 2^32 bytes that starts at the immediate. Flag 1: whether it
// is in global memory instead; flag 2: in constant memory.
void in_space(Block &block, const Op &op) {
    const u64 *from = block.at<u64>(op.from[0]), low = u64(op.immediate);
    const Region *regions = nullptr;
    const i64 count = op.flags & 2 ? constant_regions(block, regions) : 0;
    for (int warp = 0; warp < block.warps; warp++) {
        const u64 *address = from + warp * LANES;
        u32 inside = op.flags & 1   ? lanes_where<u64>([=](int lane) { return address[lane] >= u64(1) << 39; })
                     : op.flags & 2 ? 0
                                    : lanes_where<u64>([=](int lane) { return address[lane] - low < u64(1) << 32; });
        for (i64 number = 0; number < count; number++)
            if (regions[number].constant)
                inside |= lanes_where<u64>(
                    [=](int lane) { return address[lane] - u64(regions[number].base) < u64(regions[number].size); });
        put(block.predicate(op.into[0])[warp], inside, block.mask[warp]);
    }
}

// clang-format off
// For each width: the number of bits, the unsigned type, the signed type.
#define WIDTHS(M) M(16, u16, i16) M(32, u32, i32) M(64, u64, i64)
#define ARITHMETIC(N, U, S) \
    TWO("add." #N, U, U, U, x + y) TWO("sub." #N, U, U, U, x - y) TWO("mul." #N, U, U, U, x * 1u * y) \
    THREE("mad." #N, U, U, U, U, x * 1u * y + z) \
    TWO("mulhi.u" #N, U, U, U, high_product(x, y)) TWO("mulhi.s" #N, S, S, S, high_product(x, y)) \
    TWO("div.u" #N, U, U, U, quotient(x, y)) TWO("div.s" #N, S, S, S, quotient(x, y)) \
    TWO("rem.u" #N, U, U, U, remainder_of(x, y)) TWO("rem.s" #N, S, S, S, remainder_of(x, y)) \
    TWO("min.u" #N, U, U, U, x < y ? x : y) TWO("min.s" #N, S, S, S, x < y ? x : y) \
    TWO("max.u" #N, U, U, U, x < y ? y : x) TWO("max.s" #N, S, S, S, x < y ? y : x) \
    ONE("abs.s" #N, U, S, x < 0 ? U(0) - U(x) : U(x)) \
    THREE("sad.u" #N, U, U, U, U, distance(x, y) + z) THREE("sad.s" #N, U, S, S, U, distance(x, y) + z)
#define LOGIC(N, U, S) \
    TWO("and." #N, U, U, U, x & y) TWO("or." #N, U, U, U, x | y) TWO("xor." #N, U, U, U, x ^ y) \
    ONE("not." #N, U, U, ~x) ONE("cnot." #N, U, U, x == 0) \
    TWO("shl." #N, U, U, u32, left(x, y)) TWO("shr.u" #N, U, U, u32, right(x, y)) \
    TWO("shr.s" #N, S, S, u32, right(x, y)) {"selp." #N, select<U>}, {"defined." #N, defined<U>}, \
    {"nonzero." #N, nonzero<U>},
#define COMPARES(N, U, S) \
    TEST("setp.eq." #N, U, x == y) TEST("setp.ne." #N, U, x != y) \
    TEST("setp.lt.u" #N, U, x < y) TEST("setp.lt.s" #N, S, x < y) \
    TEST("setp.le.u" #N, U, x <= y) TEST("setp.le.s" #N, S, x <= y)
#define FIELDS(N, U, S) \
    ONE("popc." #N, u32, U, __builtin_popcountll(x)) ONE("clz." #N, u32, U, zeros_above(x)) \
    ONE("brev." #N, U, U, reversed(x)) \
    THREE("bfe.u" #N, U, U, u32, u32, extracted(x, y, z)) THREE("bfe.s" #N, S, S, u32, u32, extracted(x, y, z)) \
    ONE("bfind.u" #N, u32, U, highest(x, o.flags)) ONE("bfind.s" #N, u32, S, highest(x, o.flags)) \
    {"addc." #N, with_carry<U>}, \
    {"bfi." #N, [](Block &b, const Op &o) { \
        const u32 *length = b.at<u32>(o.from[3]), *start = b.at<u32>(o.from[2]); \
        const U *x = b.at<U>(o.from[0]), *y = b.at<U>(o.from[1]); \
        compute<U>(b, o, [=](int lane) { return inserted(x[lane], y[lane], start[lane], length[lane]); }); }},
#define WORDS(NAME, E) {NAME, [](Block &b, const Op &o) { words(b, o, [](u32 x, u32 y) { (void)y; return E; }); }},

const Operation OPERATIONS[] = {
    ONE("mov.8", u8, u8, x) ONE("mov.16", u16, u16, x) ONE("mov.32", u32, u32, x) ONE("mov.64", u64, u64, x)
    WIDTHS(ARITHMETIC) WIDTHS(LOGIC) WIDTHS(COMPARES) FIELDS(32, u32, i32) FIELDS(64, u64, i64)
    TWO("mulwide.u16", u32, u16, u16, u32(x) * y) TWO("mulwide.s16", i32, i16, i16, i32(x) * y)
    TWO("mulwide.u32", u64, u32, u32, u64(x) * y) TWO("mulwide.s32", i64, i32, i32, i64(x) * y)
    TWO("mul24.u", u64, u32, u32, u64(x & 0xFFFFFF) * (y & 0xFFFFFF))
    TWO("mul24.s", i64, u32, u32, i64(i32(x << 8) >> 8) * (i32(y << 8) >> 8))
    THREE("lop3", u32, u32, u32, u32, logic(x, y, z, o.flags))
    THREE("shf", u32, u32, u32, u32, funnel(x, y, z, o.flags))
    THREE("prmt", u32, u32, u32, u32, permuted(x, y, z)) ONE("prmt.control", u32, u32, control_of(x, o.flags))
    THREE("dot", u32, u32, u32, u32, dot(x, y, z, o.flags)) THREE("fns", u32, u32, u32, i32, nth_set(x, y, z))
    TWO("bmsk", u32, u32, u32, left(~left(ALL, y), x))
    {"unpack.64.32", unpack<u64, u32>}, {"unpack.64.16", unpack<u64, u16>}, {"unpack.32.16", unpack<u32, u16>},
    {"unpack.32.8", unpack<u32, u8>}, {"unpack.16.8", unpack<u16, u8>},
    {"pack.64.32", pack<u64, u32>}, {"pack.64.16", pack<u64, u16>}, {"pack.32.16", pack<u32, u16>},
    {"pack.32.8", pack<u32, u8>}, {"pack.16.8", pack<u16, u8>},
    WORDS("mov.1", x) WORDS("and.1", x & y) WORDS("or.1", x | y) WORDS("xor.1", x ^ y)
    {"isspacep", in_space},
};
// clang-format on

} // namespace

Table integers() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
