// Machine code: the table of the operations that use only registers, for 32 lanes at once.
#include "sass_exchange.hpp"
#include "sass_floats.hpp"

namespace engine::LEVEL {

namespace {

// clang-format off
#define RUN(NAME, CALL) {NAME, [](Warp &w, const Instruction &i, u32 m) { CALL; }},
#define WORDS(NAME, N, E) RUN(NAME, words<N>(w, i, m, [&](u32 x, u32 y, u32 z) { (void)x, (void)y, (void)z; return u32(E); }))
#define FLOATS(NAME, N, E) RUN(NAME, floats<N>(w, i, m, [&](f32 x, f32 y, f32 z) { (void)y, (void)z; return f32(E); }))
#define DOUBLES(NAME, N, E) RUN(NAME, doubles<N>(w, i, m, [&](f64 x, f64 y, f64 z) { (void)y, (void)z; return E; }))
#define HALVES(NAME, N, E) \
    RUN(NAME ".f16", halves<Float16 COMMA N>(w, i, m, [](f64 x, f64 y, f64 z) { (void)z; return E; })) \
    RUN(NAME ".bf16", halves<Brain16 COMMA N>(w, i, m, [](f64 x, f64 y, f64 z) { (void)z; return E; }))
#define COMMA ,
#define COMPARED(NAME) RUN(NAME ".f16", compare_halves<Float16>(w, i, m)) RUN(NAME ".bf16", compare_halves<Brain16>(w, i, m))
#define LEAST(TYPE, V) \
    RUN("min." TYPE, least<V COMMA 2 COMMA false>(w, i, m)) RUN("addmin." TYPE, least<V COMMA 3 COMMA true>(w, i, m)) \
    RUN("min3." TYPE, least<V COMMA 3 COMMA false>(w, i, m))

const sass::Operation OPERATIONS[] = {
    WORDS("mov", 1, x) WORDS("iadd3", 3, x + y + z) WORDS("imad", 3, x * y + z)
    WORDS("prmt", 3, permuted(x, y, z)) WORDS("popc", 1, __builtin_popcount(x)) WORDS("brev", 1, reversed(x))
    WORDS("iabs", 1, i32(x) < 0 ? -x : x) WORDS("idp", 3, bytes_product(x, y, z, i.mode[0], i.mode[1]))
    WORDS("idp.2a", 3, pairs_product(x, y, z, i.mode[0], i.mode[1], i.mode[2]))
    WORDS("iadd.16x2", 2, Two<u16>::each(x, y, y, [](u16 a, u16 b, u16) { return a + b; }))
    WORDS("vabsdiff.u", 3, absolute_difference(x, y, false) + z) WORDS("vabsdiff.s", 3, absolute_difference(x, y, true) + z)
    WORDS("vabsdiff4.u", 3, differences_of_bytes(x, y, z, false, i.mode[0]))
    WORDS("vabsdiff4.s", 3, differences_of_bytes(x, y, z, true, i.mode[0]))
    WORDS("bmsk", 2, mask_of_bits(x, y)) WORDS("i2ip", 3, packed_integers(x, y, z, i.mode[0], i.mode[1]))
    WORDS("flo.u32", 1, x ? 31 - __builtin_clz(x) : ALL) WORDS("flo.sh.u32", 1, x ? __builtin_clz(x) : ALL)
    WORDS("flo.s32", 1, (x ^= i32(x) >> 31) ? 31 - __builtin_clz(x) : ALL)
    WORDS("flo.sh.s32", 1, (x ^= i32(x) >> 31) ? __builtin_clz(x) : ALL)
    RUN("imad.x", chosen<3>(w, i, m, [](bool carry, u32 x, u32 y, u32 z) { return x * y + z + carry; }))
    RUN("iadd3.carry", add_with_carry(w, i, m)) RUN("imad.wide", multiply_wide(w, i, m))
    RUN("lea", shift_and_add(w, i, m)) RUN("shf", funnel(w, i, m)) RUN("lop3", logic(w, i, m))
    RUN("plop3", predicate_logic(w, i, m))
    RUN("isetp.u32", compare_words<u32>(w, i, m)) RUN("isetp.s32", compare_words<i32>(w, i, m))
    RUN("isetp.u64", compare_pairs<u64>(w, i, m)) RUN("isetp.s64", compare_pairs<i64>(w, i, m))
    RUN("mov.64", add_pairs<1>(w, i, m)) RUN("iadd.64", add_pairs<2>(w, i, m)) RUN("iadd3.64", add_pairs<3>(w, i, m))
    RUN("sel.64", chosen_pair(w, i, m, [](bool first, u64, u64) { return first; }))
    RUN("min.u64", chosen_pair(w, i, m, [](bool least, u64 x, u64 y) { return (x < y) == least; }))
    RUN("min.s64", chosen_pair(w, i, m, [](bool least, u64 x, u64 y) { return (i64(x) < i64(y)) == least; }))
    RUN("fsetp", compare_words<f32>(w, i, m)) RUN("dsetp", compare_doubles(w, i, m))
    RUN("fset", compare_to_register(w, i, m))
    RUN("sel", chosen<2>(w, i, m, [](bool first, u32 x, u32 y, u32) { return first ? x : y; }))
    LEAST("u32", One<u32>) LEAST("s32", One<i32>) LEAST("u16x2", Two<u16>) LEAST("s16x2", Two<i16>)
    RUN("min.f32", chosen<2>(w, i, m, [&](bool least, u32 x, u32 y, u32) { return lesser_float(least, i.flags, x, y); }))
    RUN("min3.f32", chosen<3>(w, i, m, [&](bool least, u32 x, u32 y, u32 z) {
        return lesser_float(least, i.flags, lesser_float(least, i.flags, x, y), z); }))
    RUN("sgxt.u32", extend<u32>(w, i, m))
    RUN("sgxt.s32", extend<i32>(w, i, m))
    FLOATS("fadd", 2, x + y) FLOATS("fmul", 2, x * y) FLOATS("fmul.scaled", 2, x * (y * real(u32(i.mode[0])))) FLOATS("ffma", 3, __builtin_fmaf(x, y, z))
    FLOATS("frnd", 1, whole(x, i.mode[3])) DOUBLES("frnd.f64", 1, whole(x, i.mode[3]))
    RUN("frnd.f16", halves<Float16 COMMA 1>(w, i, m, [&](f64 x, f64, f64) { return whole(x, i.mode[3]); }))
    FLOATS("mufu.rcp", 1, 1 / f64(x)) FLOATS("mufu.rsq", 1, 1 / std::sqrt(f64(x))) FLOATS("mufu.sqrt", 1, std::sqrt(f64(x)))
    FLOATS("mufu.ex2", 1, std::exp2(f64(x))) FLOATS("mufu.lg2", 1, std::log2(f64(x)))
    FLOATS("mufu.sin", 1, std::sin(f64(x) * TURN)) FLOATS("mufu.cos", 1, std::cos(f64(x) * TURN))
    FLOATS("mufu.tanh", 1, std::tanh(f64(x)))
    RUN("mufu.tanh.f16", halves<Float16 COMMA 1>(w, i, m, [](f64 x, f64, f64) { return std::tanh(x); }))
    RUN("mufu.ex2.f16", halves<Float16 COMMA 1>(w, i, m, [](f64 x, f64, f64) { return std::exp2(x); }))
    WORDS("mufu.rcp64h", 1, as_bits<u32>(upper_word(1 / as_upper(real(x)))))
    WORDS("mufu.rsq64h", 1, as_bits<u32>(upper_word(1 / std::sqrt(as_upper(real(x))))))
    RUN("fchk", { Words a COMMA b; const u32 *x = word(w, i.sources[0], a); const u32 *y = word(w, i.sources[1], b);
        write_predicate(w, i.into_predicate[0], lanes_where<u32>([=](int l) { return needs_slow_division(x[l], y[l]); }), m); })
    DOUBLES("dadd", 2, x + y) DOUBLES("dmul", 2, x * y) DOUBLES("dfma", 3, __builtin_fma(x, y, z))
    HALVES("hadd2", 2, sum_to_odd(x, y)) HALVES("hmul2", 2, x * y) HALVES("hfma2", 3, sum_to_odd(x * y, z))
    COMPARED("hset2") COMPARED("hsetp2")
    RUN("hmnmx2.f16", halves<Float16 COMMA 2>(w, i, m, [&](f64 x, f64 y, f64) { return least_half(i.mode[0], i.mode[1], x, y); }))
    RUN("hmnmx2.bf16", halves<Brain16 COMMA 2>(w, i, m, [&](f64 x, f64 y, f64) { return least_half(i.mode[0], i.mode[1], x, y); }))
    WORDS("hadd2.f32", 1, (widened(x, i.sources[0].half)))
    RUN("i2f", from_integer(w, i, m)) RUN("f2i", to_integer(w, i, m)) RUN("f2f.f64.f32", widen(w, i, m))
    RUN("f2f.f32.f64", from_double(w, i, m, [](f64 x) { return number(f32(x)); }))
    RUN("f2f.f16.f64", from_double(w, i, m, [](f64 x) { return narrow<Float16>(x); }))
    WORDS("f2f.f16.f32", 1, narrow<Float16>(real(x), i.flags & 1)) WORDS("f2f.bf16.f32", 1, narrow<Brain16>(real(x), i.flags & 1))
    WORDS("f2fp.f16", 2, narrow<Float16>(real(x), i.flags & 1) << 16 | narrow<Float16>(real(y), i.flags & 1))
    WORDS("f2fp.bf16", 2, narrow<Brain16>(real(x), i.flags & 1) << 16 | narrow<Brain16>(real(y), i.flags & 1))
    WORDS("f2fp.e4m3", 3, z << 16 | narrow_to_byte<3>(real(x)) << 8 | narrow_to_byte<3>(real(y)))
    WORDS("f2fp.e5m2", 3, z << 16 | narrow_to_byte<2>(real(x)) << 8 | narrow_to_byte<2>(real(y)))
    WORDS("f2fp.f16.e4m3", 1, both_bytes<3>(x, i.sources[0].half)) WORDS("f2fp.f16.e5m2", 1, both_bytes<2>(x, i.sources[0].half))
    RUN("shfl", shuffle(w, i, m)) RUN("vote", vote(w, i, m)) RUN("match", match(w, i, m)) RUN("redux", reduce(w, i, m))
    RUN("r2ur", first_active(w, i, m)) RUN("p2r", predicates_to_register(w, i, m))
    RUN("r2p", register_to_predicates(w, i, m))
};
// clang-format on

} // namespace

sass::Table machine_code() { return {OPERATIONS, sizeof OPERATIONS / sizeof *OPERATIONS}; }

} // namespace engine::LEVEL
