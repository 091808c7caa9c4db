#pragma once
#include "hopper.cuh"

// C transposed: a group's 64 columns of b by BM rows of a. Block: BM rows, 64 * GROUPS columns.
template <int BM_, int STAGES_, int CLUSTER_, int STRIP_, int GROUPS_ = 2> struct Tf {
    static constexpr int BM = BM_, STAGES = STAGES_, CLUSTER = CLUSTER_, STRIP = STRIP_, GROUPS = GROUPS_;
    static constexpr int BN = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int STAGE = (BM + BN) * 128;
    static constexpr int SHARED = STAGES * STAGE + 1024 + 256;
};

// clusters along n share rows of a (the larger operand): each loads BM / CL of them
template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
tf32_kernel(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, float *c, int m, int k, int n)
{
    constexpr int BM = P::BM, BN = P::BN, STAGES = P::STAGES, CL = P::CLUSTER, STRIP = P::STRIP;
    extern __shared__ uint4 raw[];
    uint32_t base = (smem(raw) + 1023) / 1024 * 1024;
    const char *tiles = (const char *)raw + (base - smem(raw));
    uint32_t full = base + STAGES * P::STAGE, empty = full + STAGES * 8;
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

    int tall = (m + BM - 1) / BM, wide = (n + BN * CL - 1) / (BN * CL), steps = (k + 63) / 64 * 2;
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
                        tma_load(a, &ma, bar, step * 32, row);
                    else
                        tma_load_multi(a + rank * (BM / CL) * 128, &ma, bar, step * 32, row + rank * (BM / CL), (1 << CL) - 1);
                    for (int j = 0; j < BN / 32; j++)
                        tma_load(b + j * 4096, &mb, bar, col + j * 32, step * 32);
                    if (++s == STAGES) s = 0, parity ^= 1;
                }
            }
        }
    } else {
        more_registers<P::GROUPS == 2 ? 232 : 160>();
        int lane = idx % 32, warp = idx / 32 % 4, g = lane / 4;
        // a lane has two columns next to each other; the warp's 16 are spread so that its loads meet all banks once
        int chunk = g / 2 % 2 * 4 + warp % 2 * 2 + g / 4, box = group * 2 + warp / 2;
        int from = BM * 128 + box * 4096 + lane % 4 * 128 + g % 2 * 8;
        int near = from + ((chunk ^ lane % 4) * 16), far = from + 512 + ((chunk ^ (lane % 4 + 4)) * 16);
        int column = box * 32 + chunk * 4 + g % 2 * 2;
        auto release = [&](int stage) {
            if (CL == 1) {
                if (idx % 128 == 0) bar_arrive(empty + stage * 8);
            } else if (idx % 128 < CL)
                bar_arrive_at(empty + stage * 8, idx % 128);
        };
        unsigned cols[2][4][4];
        for (int t = blockIdx.x / CL; t < tall * wide; t += clusters) {
            int row, col;
            place(t, row, col);
            float sum[BM / 2];
#pragma unroll
            for (int i = 0; i < BM / 2; i++) sum[i] = 0;
            hold(sum);
            int last = -1;
            for (int pair = 0; pair < steps; pair += 2)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    bar_wait(full + s * 8, parity);
                    const char *tile = tiles + s * P::STAGE;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        uint2 x = *(const uint2 *)(tile + near + i * 1024), y = *(const uint2 *)(tile + far + i * 1024);
                        cols[half][i][0] = x.x, cols[half][i][1] = x.y, cols[half][i][2] = y.x, cols[half][i][3] = y.y;
                    }
                    uint64_t rows = ((base + s * P::STAGE) & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
                    mma_fence();
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        mma(sum, cols[half][i], rows + i * 2);
                    mma_commit();
                    mma_wait<1>();
                    if (last >= 0) release(last);
                    last = s;
                    if (++s == STAGES) s = 0, parity ^= 1;
                }
            mma_wait<0>();
            hold(sum);
            release(last);
#pragma unroll
            for (int i = 0; i < BM / 2; i += 4)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    size_t r = row + i / 4 * 8 + lane % 4 * 2 + e, q = col + column;
                    if (r < m && q < n)
                        *(float2 *)(c + r * n + q) = {sum[i + e], sum[i + 2 + e]};
                }
        }
    }
    if (CL > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
