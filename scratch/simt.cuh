#pragma once
#include "hopper.cuh"
template <int BYTES> __device__ __forceinline__ void copy_async(void *to, const void *from, bool inside)
{
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0) : "memory");
}
template <int TM_, int TN_, int WM_, int WN_, int TK_, int STAGES_, int UNROLL_, int FRAG_, int STRIP_, int BLOCKS_ = 1> struct Simt {
    static constexpr int TM = TM_, TN = TN_, WM = WM_, WN = WN_, TK = TK_, STAGES = STAGES_, UNROLL = UNROLL_, FRAG = FRAG_, STRIP = STRIP_, BLOCKS = BLOCKS_;
    static constexpr int THREADS = WM * WN * 32, BM = WM * 4 * TM, BN = WN * 8 * TN, PITCH = BM + 4;
    static constexpr int STAGE = TK * (PITCH + BN), SHARED = STAGES * STAGE * 4;
};
union Four { float4 all; float at[4]; };
template <class P> __global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
simt_kernel(const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int m, int k, int n)
{
    constexpr int TM = P::TM, TN = P::TN, TK = P::TK, BM = P::BM, BN = P::BN, PITCH = P::PITCH, STAGES = P::STAGES, THREADS = P::THREADS;
    extern __shared__ float tiles[];
    int tall = (m + BM - 1) / BM, wide = (n + BN - 1) / BN;
    int strip = blockIdx.x / (P::STRIP * wide) * P::STRIP, number = blockIdx.x - strip * wide, high = min(tall - strip, P::STRIP);
    size_t row0 = (size_t)(strip + number % high) * BM, col0 = (size_t)(number / high) * BN;
    int idx = threadIdx.x, lane = idx % 32, warp = idx / 32;
    int lane_m = lane % 2 + lane / 16 * 2, lane_n = lane / 2 % 8;
    int from_m = warp / P::WN * 4 * TM + lane_m * 4, from_n = warp % P::WN * 8 * TN + lane_n * 4;
    constexpr int APART = THREADS / TK, EACH = BM / APART;
    int row_a = idx / TK, col_a = idx % TK;
    const float *from_a = a + (row0 + row_a) * k + col_a;
    const float *from_b = b + (size_t)(idx / (BN / 4)) * n + col0 + idx % (BN / 4) * 4;
    int steps = k / TK;
    auto load = [&](int stage) {
        float *ta = tiles + stage * P::STAGE, *tb = ta + TK * PITCH;
#pragma unroll
        for (int e = 0; e < EACH; e++)
            copy_async<4>(ta + col_a * PITCH + row_a + e * APART, from_a + (size_t)e * APART * k, true);
#pragma unroll
        for (int i = 0; i < TK * BN / 4 / THREADS; i++)
            copy_async<16>(tb + (idx + i * THREADS) * 4, from_b + (size_t)(i * (THREADS / (BN / 4))) * n, true);
        from_a += TK;
        from_b += (size_t)TK * n;
    };
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) load(s);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    float sum[TM][TN] = {};
    int now = 0, next = STAGES - 1;
    Four column[2][TM / 4], line[2][TN / 4];
    auto fetch = [&](int into, const float *ta, const float *tb, int i) {
#pragma unroll
        for (int r = 0; r < TM / 4; r++) column[into][r].all = *(const float4 *)(ta + i * PITCH + r * 16);
#pragma unroll
        for (int s = 0; s < TN / 4; s++) line[into][s].all = *(const float4 *)(tb + i * BN + s * 32);
    };
    auto multiply = [&](int with) {
        if (P::FRAG / 2) {
#pragma unroll
            for (int s = 0; s < TN; s++)
#pragma unroll
                for (int r0 = 0; r0 < TM; r0++) {
                    int r = s % 2 ? TM - 1 - r0 : r0;
                    sum[r][s] += column[with][r / 4].at[r % 4] * line[with][s / 4].at[s % 4];
                }
            return;
        }
#pragma unroll
        for (int r = 0; r < TM; r++)
#pragma unroll
            for (int s0 = 0; s0 < TN; s0++) {
                int s = r % 2 ? TN - 1 - s0 : s0;
                sum[r][s] += column[with][r / 4].at[r % 4] * line[with][s / 4].at[s % 4];
            }
    };
    if (P::FRAG % 2) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        const float *ta = tiles + from_m, *tb = tiles + TK * PITCH + from_n;
        fetch(0, ta, tb, 0);
        for (int step = 0; step < steps; step++) {
#pragma unroll P::UNROLL / 2
            for (int i = 0; i < TK; i += 2) {
                fetch(1, ta, tb, i + 1);
                if (i == 0) {
                    if (step + STAGES - 1 < steps) load(next);
                    asm volatile("cp.async.commit_group;" ::: "memory");
                }
                multiply(0);
                if (i == TK - 2) {
                    asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
                    __syncthreads();
                    next = now;
                    now = now + 1 < STAGES ? now + 1 : 0;
                    ta = tiles + now * P::STAGE + from_m, tb = tiles + now * P::STAGE + TK * PITCH + from_n;
                    fetch(0, ta, tb, 0);
                } else
                    fetch(0, ta, tb, i + 2);
                multiply(1);
            }
        }
    } else
        for (int step = 0; step < steps; step++) {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            __syncthreads();
            if (step + STAGES - 1 < steps) load(next);
            asm volatile("cp.async.commit_group;" ::: "memory");
            const float *ta = tiles + now * P::STAGE + from_m, *tb = tiles + now * P::STAGE + TK * PITCH + from_n;
#pragma unroll P::UNROLL
            for (int i = 0; i < TK; i++) {
                fetch(0, ta, tb, i);
                multiply(0);
            }
            now = now + 1 < STAGES ? now + 1 : 0;
            next = next + 1 < STAGES ? next + 1 : 0;
        }
#pragma unroll
    for (int r = 0; r < TM; r++)
#pragma unroll
        for (int s = 0; s < TN; s += 4) {
            size_t row = row0 + from_m + r / 4 * 16 + r % 4, col = col0 + from_n + s * 8;
            if (row < m && col < n)
                *(float4 *)(c + row * n + col) = {sum[r][s], sum[r][s + 1], sum[r][s + 2], sum[r][s + 3]};
        }
}
