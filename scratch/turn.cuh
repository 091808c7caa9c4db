#pragma once
#include "hopper.cuh"

// C transposed: a group's 64 columns of b by BM rows of a. Block: BM rows, 64 * GROUPS columns.
template <int BM_, int STAGES_, int CLUSTER_, int STRIP_, int GROUPS_ = 2> struct Turn {
    static constexpr int BM = BM_, STAGES = STAGES_, CLUSTER = CLUSTER_, STRIP = STRIP_, GROUPS = GROUPS_;
    static constexpr int BN = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int STAGE = (BM + BN) * 128;
    static constexpr int SHARED = STAGES * STAGE + GROUPS * 2 * 8192 + 1024 + 256;
};

// clusters along n share rows of a (the larger operand): each loads BM / CL of them
template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
turn_kernel(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, const __grid_constant__ CUtensorMap mc, __nv_bfloat16 *c, int m, int k, int n)
{
    constexpr int BM = P::BM, BN = P::BN, STAGES = P::STAGES, CL = P::CLUSTER, STRIP = P::STRIP;
    extern __shared__ uint4 raw[];
    uint32_t base = (smem(raw) + 1023) / 1024 * 1024;
    const char *tiles = (const char *)raw + (base - smem(raw));
    uint32_t out = base + STAGES * P::STAGE, full = out + P::GROUPS * 2 * 8192, empty = full + STAGES * 8;
    int idx = threadIdx.x, group = idx / 128;
    int rank = CL > 1 ? blockIdx.x % CL : 0;
    if (idx == 0) {
        for (int s = 0; s < STAGES; s++) {
            bar_init(full + s * 8, 1);
            bar_init(empty + s * 8, P::GROUPS * CL);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (CL > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
    else
        __syncthreads();

    int tall = (m + BM - 1) / BM, wide = (n + BN * CL - 1) / (BN * CL), steps = (k + 63) / 64;
    int clusters = gridDim.x / CL, s = 0, parity = 0;
    auto place = [&](int number, int &row, int &col) {
        int strip = number / (STRIP * wide) * STRIP, rest = number - strip * wide, high = min(tall - strip, STRIP);
        row = (strip + rest % high) * BM;
        col = (rest / high * CL + rank) * BN;
    };
    if (group == P::GROUPS) {
        fewer_registers<40>();
        if (idx == P::GROUPS * 128) {
            for (int t = blockIdx.x / CL; t < tall * wide; t += clusters) {
                int row, col;
                place(t, row, col);
                for (int step = 0; step < steps; step++) {
                    bar_wait_cluster(empty + s * 8, parity ^ 1);
                    uint32_t a = base + s * P::STAGE, b = a + BM * 128, bar = full + s * 8;
                    bar_expect(bar, P::STAGE);
                    if (CL == 1)
                        tma_load(a, &ma, bar, step * 64, row);
                    else
                        tma_load_multi(a + rank * (BM / CL) * 128, &ma, bar, step * 64, row + rank * (BM / CL), (1 << CL) - 1);
                    for (int j = 0; j < BN / 64; j++)
                        tma_load(b + j * 8192, &mb, bar, col + j * 64, step * 64);
                    if (++s == STAGES) s = 0, parity ^= 1;
                }
            }
        }
    } else {
        more_registers<P::GROUPS == 2 ? 232 : 160>();
        int lane = idx % 32, warp = idx / 32 % 4;
        auto release = [&](int stage) {
            if (CL == 1) {
                if (idx % 128 == 0) bar_arrive(empty + stage * 8);
            } else if (idx % 128 < CL)
                bar_arrive_at(empty + stage * 8, idx % 128);
        };
        for (int t = blockIdx.x / CL; t < tall * wide; t += clusters) {
            int row, col;
            place(t, row, col);
            float sum[BM / 2];
#pragma unroll
            for (int i = 0; i < BM / 2; i++) sum[i] = 0;
            hold(sum);
            int last = -1;
            for (int step = 0; step < steps; step++) {
                bar_wait(full + s * 8, parity);
                uint64_t pattern = 1ull << 16 | 64ull << 32 | 1ull << 62;
                uint64_t rows = ((base + s * P::STAGE) & 0x3FFFF) >> 4 | pattern, cols = rows + (BM * 128 + group * 8192) / 16;
                mma_fence();
#pragma unroll
                for (int i = 0; i < 4; i++)
                    turned(sum, cols + i * 128, rows + i * 2);
                mma_commit();
                mma_wait<1>();
                if (last >= 0) release(last);
                last = s;
                if (++s == STAGES) s = 0, parity ^= 1;
            }
            mma_wait<0>();
            hold(sum);
            release(last);
            int chunk = warp * 2 + lane / 8 % 2;
#pragma unroll
            for (int j = 0; j < BM / 64; j++) {
                uint32_t to = out + (group * 2 + j % 2) * 8192;
                if (idx % 128 == 0) asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
                group_sync(1 + group);
#pragma unroll
                for (int i = 0; i < 32; i += 8) {
                    unsigned v[4];
#pragma unroll
                    for (int e = 0; e < 4; e++) {
                        __nv_bfloat162 two = __floats2bfloat162_rn(sum[j * 32 + i + e * 2], sum[j * 32 + i + e * 2 + 1]);
                        v[e] = *(unsigned *)&two;
                    }
                    int r = i * 2 + lane / 16 * 8 + lane % 8;
                    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                                     to + r * 128 + (chunk ^ r % 8) * 16),
                                 "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
                }
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                group_sync(1 + group);
                if (idx % 128 == 0) {
                    tma_store(&mc, to, col + group * 64, row + j * 64);
                    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                }
            }
        }
        if (idx % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    if (CL > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
