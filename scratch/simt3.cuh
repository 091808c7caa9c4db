#pragma once
#include "simt2.cuh"
// As simt2 by TMA, with a loop over 4 k: a row of a's fragment is reloaded as soon as its last product is begun.
template <int TM_, int TN_, int WM_, int WN_, int STAGES_, int ORDER_, int UNROLL_, int BLOCKS_> struct Simt3 {
    static constexpr int TM = TM_, TN = TN_, WM = WM_, WN = WN_, STAGES = STAGES_, ORDER = ORDER_, UNROLL = UNROLL_, BLOCKS = BLOCKS_, TK = 32;
    static constexpr int THREADS = WM * WN * 32, BM = WM * 4 * TM, BN = WN * 8 * TN, STRIP = 16;
    static constexpr int STAGE = TK * (BM + BN) * 4, SHARED = STAGES * STAGE + 1024 + 256;
};
template <class P> __global__ void __launch_bounds__(P::THREADS, P::BLOCKS)
simt3_kernel(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, const float *__restrict__ a, const float *__restrict__ b, float *__restrict__ c, int m, int k, int n)
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
    int steps = (k + TK - 1) / TK;
    auto load = [&](int stage, int step) {
        uint32_t to = base + stage * P::STAGE;
        bar_expect(full + stage * 8, P::STAGE);
        tma_load(to, &ma, full + stage * 8, step * TK, row0);
        tma_load(to + BM * 128, &mb, full + stage * 8, col0, step * TK);
    };
    if (idx == 0) {
        for (int s = 0; s < STAGES; s++) bar_init(full + s * 8, 1), bar_init(empty + s * 8, THREADS / 32);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        for (int s = 0; s < STAGES && s < steps; s++) load(s, s);
    }
    __syncthreads();
    float sum[TM][TN] = {};
    int now = 0, parity = 0, next = STAGES - 1, past = 0;
    Four column[TM], line[2][TN / 4];
    auto fetch_a = [&](int r, const char *a0, const char *a1) {
        column[r].all = *(const float4 *)((r % 2 ? a1 : a0) + r * 512);
    };
    auto fetch_b = [&](int into, const char *from, int e) {
#pragma unroll
        for (int s = 0; s < TN / 4; s++) line[into][s].all = *(const float4 *)(from + e * BN * 4 + s * 128);
    };
    auto row = [&](int r, int e) {
#pragma unroll
        for (int s0 = 0; s0 < TN; s0++) {
            int s = r % 2 ? TN - 1 - s0 : s0;
            sum[r][s] += column[r].at[e] * line[e % 2][s / 4].at[s % 4];
        }
    };
    auto all = [&](int e) {
        if (P::ORDER == 0) {
#pragma unroll
            for (int r = 0; r < TM; r++) row(r, e);
        } else {
#pragma unroll
            for (int s = 0; s < TN; s++)
#pragma unroll
                for (int r0 = 0; r0 < TM; r0++) {
                    int r = s % 2 ? TM - 1 - r0 : r0;
                    sum[r][s] += column[r].at[e] * line[e % 2][s / 4].at[s % 4];
                }
        }
    };
    const char *tile = tiles, *my_b = tiles + BM * 128 + from_n * 4;
    bar_wait(full, 0);
    {
        const char *a0 = tile + from_m * 128 + lane_m * 16, *a1 = tile + from_m * 128 + (lane_m ^ 4) * 16;
#pragma unroll
        for (int r = 0; r < TM; r++) fetch_a(r, a0, a1);
        fetch_b(0, my_b, 0);
    }
    auto part = [&](int kc, auto last) {
        fetch_b(1, my_b, 1);
        all(0);
        fetch_b(0, my_b, 2);
        all(1);
        fetch_b(1, my_b, 3);
        all(2);
        my_b += 4 * BN * 4;
        last();
        const char *a0 = tile + from_m * 128 + ((lane_m ^ kc) * 16), *a1 = tile + from_m * 128 + ((lane_m ^ kc ^ 4) * 16);
        fetch_b(0, my_b, 0);
#pragma unroll
        for (int r = 0; r < TM; r++) {
            row(r, 3);
            fetch_a(r, a0, a1);
        }
    };
    for (int step = 0; step < steps; step++) {
#pragma unroll P::UNROLL
        for (int kc = 1; kc < 8; kc++) part(kc, [] {});
        if (idx == 0 && step > 0 && step - 1 + STAGES < steps) {
            bar_wait(empty + next * 8, past);
            load(next, step - 1 + STAGES);
        }
        int done = now;
        part(0, [&] {
            if (++now == STAGES) now = 0, parity ^= 1;
            if (step > 0 && ++next == STAGES) next = 0, past ^= 1;
            if (step == 0) next = 0;
            tile = tiles + now * P::STAGE;
            my_b = tile + BM * 128 + from_n * 4;
            if (step + 1 < steps) bar_wait(full + now * 8, parity);
        });
        __syncwarp();
        if (lane == 0) bar_arrive(empty + done * 8);
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
