// Arithmetic that each lane does by itself. Compiled once for each set of vector instructions.
#include "engine.hpp"

#ifndef LEVEL
#define LEVEL base
#endif

namespace engine::LEVEL {

namespace {

// Compute something of type D of each active lane's operands of type A.
template <class D, class A, class F> inline void each(Block &block, const Op &op, F compute, int operands) {
    D *into = block.at<D>(op.into[0]);
    const A *x = block.at<A>(op.from[0]);
    const A *y = operands > 1 ? block.at<A>(op.from[1]) : x;
    const A *z = operands > 2 ? block.at<A>(op.from[2]) : x;
    if (block.full) {
        for (int lane = 0; lane < block.warps * LANES; lane++)
            into[lane] = D(compute(x[lane], y[lane], z[lane]));
        return;
    }
    for (int warp = 0; warp < block.warps; warp++) {
        const u32 mask = block.mask[warp];
        if (!mask)
            continue;
        const int first = warp * LANES;
        for (int lane = 0; lane < LANES; lane++) {
            D value = D(compute(x[first + lane], y[first + lane], z[first + lane]));
            into[first + lane] = mask >> lane & 1 ? value : into[first + lane];
        }
    }
}

#define UNARY(D, A, E) [](Block &b, const Op &o) { each<D, A>(b, o, [](A x, A, A) { return E; }, 1); }
#define BINARY(D, A, E) [](Block &b, const Op &o) { each<D, A>(b, o, [](A x, A y, A) { return E; }, 2); }
#define TERNARY(D, A, E) [](Block &b, const Op &o) { each<D, A>(b, o, [](A x, A y, A z) { return E; }, 3); }

// A predicate of each active lane's operands.
template <class A, class F> inline void test(Block &block, const Op &op, F holds) {
    u32 *into = block.predicate(op.into[0]);
    const A *x = block.at<A>(op.from[0]), *y = block.at<A>(op.from[1]);
    for (int warp = 0; warp < block.warps; warp++) {
        const u32 mask = block.mask[warp];
        if (!mask)
            continue;
        u32 bits = 0;
        for (int lane = 0; lane < LANES; lane++)
            bits |= u32(holds(x[warp * LANES + lane], y[warp * LANES + lane])) << lane;
        into[warp] = (into[warp] & ~mask) | (bits & mask);
    }
}

#define TEST(A, E) [](Block &b, const Op &o) { test<A>(b, o, [](A x, A y) { return E; }); }

} // namespace

const std::vector<Operation> &scalar_operations() {
    static const std::vector<Operation> all = {
        {"mov.32", UNARY(u32, u32, x)},
        {"mov.64", UNARY(u64, u64, x)},
        {"add.32", BINARY(u32, u32, x + y)},
        {"add.64", BINARY(u64, u64, x + y)},
        {"add.f32", BINARY(f32, f32, x + y)},
        {"mad.lo.32", TERNARY(u32, u32, x *y + z)},
        {"mul.wide.s32", BINARY(i64, i32, i64(x) * y)},
        {"setp.ge.s32", TEST(i32, x >= y)},
        {"setp.lt.s32", TEST(i32, x < y)},
    };
    return all;
}

} // namespace engine::LEVEL
