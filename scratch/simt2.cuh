#pragma once
#include "simt.cuh"
// rows of a as they lie, along k; TMA (LOAD 1) or 16-byte cp.async (LOAD 0). TM x TN sums, warps of 4 x 8 lanes
template <int TM_, int TN_, int WM_, int WN_, int STAGES_, int LOAD_, int AHEAD_, int BLOCKS_> struct Simt2 {
    static constexpr int TM = TM_, TN = TN_, WM = WM_, WN = WN_, STAGES = STAGES_, LOAD = LOAD_, AHEAD = AHEAD_, BLOCKS = BLOCKS_, TK = 32;
    static constexpr int THREADS = WM * WN * 32, BM = WM * 4 * TM, BN = WN * 8 * TN, STRIP = 16;
    static constexpr int STAGE = TK * (BM + BN) * 4, SHARED = STAGES * STAGE + 1024 + 256;
};
template <class P> __global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
simt2_kernel(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int m, int k, int n)
{
    constexpr int TM = P::TM, TN = P::TN, TK = P::TK, BM = P::BM, BN = P::BN, STAGES = P::STAGES, THREADS = P::THREADS;
    extern __shared__ uint4 raw[];
    uint32_t base = (smem(raw) + 1023) / 1024 * 1024;
    char *tiles = (char *)raw + (base - smem(raw));
    uint32_t full = base + STAGES * P::STAGE, empty = full + STAGES * 8;
    int tall = (m + BM - 1) / BM, wide = (n + BN - 1) / BN;
    int strip = blockIdx.x / (P::STRIP * wide) * P::STRIP, number = blockIdx.x - strip * wide, high = min(tall - strip, P::STRIP);
    int row0 = (strip + number % high) * BM, col0 = (number / high) * BN;
    int idx = threadIdx.x, lane = idx % 32, warp = idx / 32;
    int lane_m = lane % 2 + lane / 16 * 2, lane_n = lane / 2 % 8;
    int from_m = warp / P::WN * 4 * TM + lane_m, from_n = warp % P::WN * 8 * TN + lane_n * 4;
    int steps = k / TK;
    const float *from_a = a + (size_t)(row0 + idx / 8) * k + idx % 8 * 4, *from_b = b + (size_t)(idx / (BN / 4)) * n + col0 + idx % (BN / 4) * 4;
    auto load = [&](int stage, int step) {
        if (P::LOAD == 1) {
            if (idx == 0) {
                uint32_t to = base + stage * P::STAGE;
                bar_expect(full + stage * 8, P::STAGE);
                tma_load(to, &ma, full + stage * 8, step * TK, row0);
                tma_load(to + BM * 128, &mb, full + stage * 8, col0, step * TK);
            }
        } else {
            float *ta = (float *)(tiles + stage * P::STAGE), *tb = ta + BM * TK;
            ta += idx / 8 * 32 + ((idx % 8) ^ (idx / 8 % 8)) * 4;
#pragma unroll
            for (int r = 0; r < BM; r += THREADS / 8)
                copy_async<16>(ta + r * 32, from_a + (size_t)r * k, true);
#pragma unroll
            for (int i = 0; i < TK * BN / 4 / THREADS; i++)
                copy_async<16>(tb + (idx + i * THREADS) * 4, from_b + (size_t)(i * (THREADS / (BN / 4))) * n, true);
            from_a += TK;
            from_b += (size_t)TK * n;
            asm volatile("cp.async.commit_group;" ::: "memory");
        }
    };
    if (P::LOAD == 1) {
        if (idx == 0) {
            for (int s = 0; s < STAGES; s++) bar_init(full + s * 8, 1), bar_init(empty + s * 8, THREADS / 32);
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        }
        __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < STAGES - 1; s++) if (s < steps) load(s, s);
    float sum[TM][TN] = {};
    int now = 0, parity = 0, next = STAGES - 1, past = 1;
    Four column[P::AHEAD ? 2 : 1][TM], line[2][TN / 4];
    for (int step = 0; step < steps; step++) {
        if (P::LOAD == 1) {
            bar_wait(full + now * 8, parity);
            if (step + STAGES - 1 < steps) {
                if (idx == 0) bar_wait(empty + next * 8, past);
                load(next, step + STAGES - 1);
            }
        } else {
            asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
            __syncthreads();
            if (step + STAGES - 1 < steps) load(next, 0);
            else asm volatile("cp.async.commit_group;" ::: "memory");
        }
        const char *ta = tiles + now * P::STAGE + from_m * 128;
        const float *tb = (const float *)(tiles + now * P::STAGE + BM * 128) + from_n;
        int odd = from_m % 4;
#pragma unroll
        for (int i = 0; i < TK; i += 4) {
#pragma unroll
            for (int r = 0; r < TM; r++)
                column[0][r].all = *(const float4 *)(ta + r * 512 + ((i / 4) ^ (odd + r % 2 * 4)) * 16);
#pragma unroll
            for (int e = 0; e < 4; e++) {
#pragma unroll
                for (int s = 0; s < TN / 4; s++) line[e % 2][s].all = *(const float4 *)(tb + (i + e) * BN + s * 32);
#pragma unroll
                for (int r = 0; r < TM; r++)
#pragma unroll
                    for (int s0 = 0; s0 < TN; s0++) {
                        int s = r % 2 ? TN - 1 - s0 : s0;
                        sum[r][s] += column[0][r].at[e] * line[e % 2][s / 4].at[s % 4];
                    }
            }
        }
        if (P::LOAD == 1) {
            __syncwarp();
            if (lane == 0) bar_arrive(empty + now * 8);
        }
        if (++now == STAGES) now = 0, parity ^= 1;
        if (++next == STAGES) next = 0, past ^= 1;
    }
#pragma unroll
    for (int r = 0; r < TM; r++)
#pragma unroll
        for (int s = 0; s < TN; s += 4) {
            size_t row = row0 + from_m + r * 4, col = col0 + from_n + s * 8;
            if (row < m && col < n)
                *(float4 *)(c + row * n + col) = {sum[r][s], sum[r][s + 1], sum[r][s + 2], sum[r][s + 3]};
        }
}
