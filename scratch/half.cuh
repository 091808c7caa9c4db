#pragma once
#include "hopper.cuh"

// BM x BN tile of a block, WM rows of it a consumer group (64 each m step)
template <int BN_, int STAGES_, int CLUSTER_, int STRIP_, int EPI_, int GROUPS_ = 2> struct Half {
    static constexpr int BN = BN_, STAGES = STAGES_, CLUSTER = CLUSTER_, STRIP = STRIP_, EPI = EPI_, GROUPS = GROUPS_;
    static constexpr int BM = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int STAGE = (BM + BN) * 128;
    static constexpr int CHUNK = 64 * 128;  // epilogue buffer of 64 x 64
    static constexpr int NBUF = EPI == 1 ? (BN >= 128 ? 2 : 1) : 0;
    static constexpr int SHARED = STAGES * STAGE + GROUPS * NBUF * CHUNK + 1024 + 256;
};

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
half_kernel(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, const __grid_constant__ CUtensorMap mc,
            __nv_bfloat16 *c, int m, int k, int n)
{
    constexpr int BM = P::BM, BN = P::BN, STAGES = P::STAGES, CL = P::CLUSTER, STRIP = P::STRIP;
    extern __shared__ uint4 raw[];
    uint32_t base = (smem(raw) + 1023) / 1024 * 1024;
    uint32_t out = base + STAGES * P::STAGE;
    uint32_t full = out + P::GROUPS * P::NBUF * P::CHUNK, empty = full + STAGES * 8;
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

    int tall = (m + BM * CL - 1) / (BM * CL), wide = (n + BN - 1) / BN, steps = (k + 63) / 64;
    int clusters = gridDim.x / CL, s = 0, parity = 0;
    auto place = [&](int number, int &row, int &col) {
        int strip = number / (STRIP * wide) * STRIP, rest = number - strip * wide, high = min(tall - strip, STRIP);
        row = ((strip + rest % high) * CL + rank) * BM;
        col = rest / high * BN;
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
                    tma_load(a, &ma, bar, step * 64, row);
                    if (CL == 1) {
                        for (int j = 0; j < BN / 64; j++)
                            tma_load(b + j * 8192, &mb, bar, col + j * 64, step * 64);
                    } else {
                        for (int j = rank * (BN / 64 / CL); j < (rank + 1) * (BN / 64 / CL); j++)
                            tma_load_multi(b + j * 8192, &mb, bar, col + j * 64, step * 64, (1 << CL) - 1);
                    }
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
            float sum[BN / 2];
#pragma unroll
            for (int i = 0; i < BN / 2; i++) sum[i] = 0;
            hold(sum);
            int last = -1;
            for (int step = 0; step < steps; step++) {
                bar_wait(full + s * 8, parity);
                uint32_t a = base + s * P::STAGE + group * 8192, b = base + s * P::STAGE + BM * 128;
                uint64_t pattern = 64ull << 32 | 1ull << 62;
                uint64_t rows = (a & 0x3FFFF) >> 4 | 1ull << 16 | pattern, cols = (b & 0x3FFFF) >> 4 | 512ull << 16 | pattern;
                mma_fence();
#pragma unroll
                for (int i = 0; i < 4; i++)
                    mma(sum, rows + i * 2, cols + i * 128);
                mma_commit();
                mma_wait<1>();
                if (last >= 0) release(last);
                last = s;
                if (++s == STAGES) s = 0, parity ^= 1;
            }
            mma_wait<0>();
            hold(sum);
            release(last);
            if (P::EPI == 0) {
#pragma unroll
                for (int i = 0; i < BN / 2; i += 2) {
                    size_t r = row + group * 64 + warp * 16 + lane / 4 + i / 2 % 2 * 8, q = col + i / 4 * 8 + lane % 4 * 2;
                    __nv_bfloat162 v = __floats2bfloat162_rn(sum[i], sum[i + 1]);
                    if (r < m && q < n)
                        *(__nv_bfloat162 *)(c + r * n + q) = v;
                }
            } else {
#pragma unroll
                for (int j = 0; j < BN / 64; j++) {
                    uint32_t to = out + (group * P::NBUF + j % (P::NBUF ? P::NBUF : 1)) * P::CHUNK;
                    if (idx % 128 == 0) asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(P::NBUF > 1 ? P::NBUF - 1 : 0) : "memory");
                    group_sync(1 + group);
                    int r = warp * 16 + lane % 16;
#pragma unroll
                    for (int q = 0; q < 4; q++) {
                        unsigned v[4];
#pragma unroll
                        for (int e = 0; e < 4; e++) {
                            int i = j * 32 + q * 8 + e * 2;
                            __nv_bfloat162 two = __floats2bfloat162_rn(sum[i], sum[i + 1]);
                            v[e] = *(unsigned *)&two;
                        }
                        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                                         to + r * 128 + ((q * 2 + lane / 16) ^ (r % 8)) * 16),
                                     "r"(v[0]), "r"(v[1]), "r"(v[2]), "r"(v[3]) : "memory");
                    }
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    group_sync(1 + group);
                    if (idx % 128 == 0) {
                        tma_store(&mc, to, col + j * 64, row + group * 64);
                        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                    }
                }
            }
        }
        if (P::EPI == 1 && idx % 128 == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
    if (CL > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
