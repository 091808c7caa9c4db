#pragma once
#include "hopper.cuh"

// 3 x TF32. C transposed as in tf32; warps 1 to 3 of the producer's group make the rests of a.
template <int PARTS_, int STAGES_, int CLUSTER_, int STRIP_, int DEEP_> struct Sp {
    static constexpr int PARTS = PARTS_, STAGES = STAGES_, CLUSTER = CLUSTER_, STRIP = STRIP_, GROUPS = 2, BM = 128;
    static constexpr int DEEP = DEEP_;  // steps whose products make one sum
    static constexpr int BN = 64 * GROUPS, THREADS = 128 * (GROUPS + 1);
    static constexpr int STAGE = (2 * BM + BN) * 128;
    static constexpr int SHARED = STAGES * STAGE + 1024 + 256;
};
__device__ __forceinline__ float rest_of(float x) { return x - __uint_as_float(__float_as_uint(x) & 0xFFFFE000); }

__device__ __forceinline__ void mma_at(float (&sum)[64], const unsigned (&a)[4], uint64_t b, int add)
{
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %69, 0;\nwgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" L64 "}, {%64, %65, %66, %67}, %68, p, 1, 1;}"
                 : S64(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
__device__ __forceinline__ void mma_at(float (&sum)[32], const unsigned (&a)[4], uint64_t b, int add)
{
    asm volatile("{.reg .pred p;\nsetp.ne.b32 p, %37, 0;\nwgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" L32 "}, {%32, %33, %34, %35}, %36, p, 1, 1;}"
                 : S16(0), S16(16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

template <class P>
__global__ void __launch_bounds__(P::THREADS, 1)
split_kernel(const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, float *c, int m, int k, int n)
{
    constexpr int BM = P::BM, BN = P::BN, STAGES = P::STAGES, CL = P::CLUSTER, STRIP = P::STRIP, PARTS = P::PARTS, W = 64 / PARTS;
    extern __shared__ uint4 raw[];
    uint32_t base = (smem(raw) + 1023) / 1024 * 1024;
    char *tiles = (char *)raw + (base - smem(raw));
    uint32_t full = base + STAGES * P::STAGE, empty = full + STAGES * 8, ready = empty + STAGES * 8;
    int idx = threadIdx.x, group = idx / 128;
    int rank = CL > 1 ? blockIdx.x % CL : 0;
    if (idx == 0) {
        for (int s = 0; s < STAGES; s++) {
            bar_init(full + s * 8, 1);
            bar_init(empty + s * 8, P::GROUPS * CL);
            bar_init(ready + s * 8, 3);
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
                    uint32_t a = base + s * P::STAGE, b = a + 2 * BM * 128, bar = full + s * 8;
                    bar_expect(bar, (BM + BN) * 128);
                    if (CL == 1)
                        tma_load(a, &ma, bar, step * 32, row);
                    else
                        tma_load_multi(a + rank * (BM / CL) * 128, &ma, bar, step * 32, row + rank * (BM / CL), (1 << CL) - 1);
                    for (int j = 0; j < BN / 32; j++)
                        tma_load(b + j * 4096, &mb, bar, col + j * 32, step * 32);
                    if (++s == STAGES) s = 0, parity ^= 1;
                }
            }
        } else if (idx >= P::GROUPS * 128 + 32) {
            int mine = idx - P::GROUPS * 128 - 32;
            for (int t = blockIdx.x / CL; t < tall * wide; t += clusters)
                for (int step = 0; step < steps; step++) {
                    bar_wait(full + s * 8, parity);
                    char *a = tiles + s * P::STAGE;
#pragma unroll 4
                    for (int i = mine; i < BM * 8; i += 96) {
                        float4 v = *(const float4 *)(a + i * 16);
                        *(float4 *)(a + BM * 128 + i * 16) = {rest_of(v.x), rest_of(v.y), rest_of(v.z), rest_of(v.w)};
                    }
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    __syncwarp();
                    if (mine % 32 == 0) bar_arrive(ready + s * 8);
                    if (++s == STAGES) s = 0, parity ^= 1;
                }
        }
    } else {
        more_registers<232>();
        int lane = idx % 32, warp = idx / 32 % 4, g = lane / 4;
        int chunk = g / 2 % 2 * 4 + warp % 2 * 2 + g / 4, box = group * 2 + warp / 2;
        int from = 2 * BM * 128 + box * 4096 + lane % 4 * 128 + g % 2 * 8;
        int near = from + ((chunk ^ lane % 4) * 16), far = from + 512 + ((chunk ^ (lane % 4 + 4)) * 16);
        int column = box * 32 + chunk * 4 + g % 2 * 2;
        auto release = [&](int stage) {
            if (CL == 1) {
                if (idx % 128 == 0) bar_arrive(empty + stage * 8);
            } else if (idx % 128 < CL)
                bar_arrive_at(empty + stage * 8, idx % 128);
        };
        unsigned cols[PARTS == 2 ? 2 : 1][4][4], rest[PARTS == 2 ? 2 : 1][4][4];
        for (int t = blockIdx.x / CL; t < tall * wide; t += clusters) {
            int row, col;
            place(t, row, col);
            float total[PARTS][W], sum[PARTS][W];
#pragma unroll
            for (int p = 0; p < PARTS; p++)
#pragma unroll
                for (int i = 0; i < W; i++) total[p][i] = 0, sum[p][i] = 0;
            int last = -1;
            if (PARTS == 1) {
                for (int step = 0; step < steps; step++) {
                    bar_wait(full + s * 8, parity);
                    const char *tile = tiles + s * P::STAGE;
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        float2 x = *(const float2 *)(tile + near + i * 1024), y = *(const float2 *)(tile + far + i * 1024);
                        cols[0][i][0] = __float_as_uint(x.x), cols[0][i][1] = __float_as_uint(x.y), cols[0][i][2] = __float_as_uint(y.x), cols[0][i][3] = __float_as_uint(y.y);
                        rest[0][i][0] = __float_as_uint(rest_of(x.x)), rest[0][i][1] = __float_as_uint(rest_of(x.y)), rest[0][i][2] = __float_as_uint(rest_of(y.x)), rest[0][i][3] = __float_as_uint(rest_of(y.y));
                    }
                    bar_wait(ready + s * 8, parity);
                    uint64_t rows = ((base + s * P::STAGE) & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
                    hold(sum[0]);
                    mma_fence();
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        mma_at(sum[0], rest[0][i], rows + i * 2, i > 0 || step % P::DEEP);
                        mma(sum[0], cols[0][i], rows + BM * 8 + i * 2);
                        mma(sum[0], cols[0][i], rows + i * 2);
                    }
                    mma_commit();
                    last = s;
                    if (++s == STAGES) s = 0, parity ^= 1;
                    mma_wait<0>();
                    hold(sum[0]);
                    release(last);
                    if (step % P::DEEP == P::DEEP - 1 || step == steps - 1)
#pragma unroll
                    for (int i = 0; i < W; i++) total[0][i] += sum[0][i];
                }
            } else {
                // two halves of the rows: while the sums of one are added, the products of the other go on
                for (int pair = 0; pair < steps; pair += 2) {
#pragma unroll
                    for (int half = 0; half < 2; half++) {
                        bar_wait(full + s * 8, parity);
                        const char *tile = tiles + s * P::STAGE;
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            float2 x = *(const float2 *)(tile + near + i * 1024), y = *(const float2 *)(tile + far + i * 1024);
                            cols[half][i][0] = __float_as_uint(x.x), cols[half][i][1] = __float_as_uint(x.y), cols[half][i][2] = __float_as_uint(y.x), cols[half][i][3] = __float_as_uint(y.y);
                            rest[half][i][0] = __float_as_uint(rest_of(x.x)), rest[half][i][1] = __float_as_uint(rest_of(x.y)), rest[half][i][2] = __float_as_uint(rest_of(y.x)), rest[half][i][3] = __float_as_uint(rest_of(y.y));
                        }
                        bar_wait(ready + s * 8, parity);
                        uint64_t rows = ((base + s * P::STAGE) & 0x3FFFF) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
#pragma unroll
                        for (int p = 0; p < PARTS; p++) {
                            hold(sum[p]);
                            mma_fence();
#pragma unroll
                            for (int i = 0; i < 4; i++) {
                                mma_at(sum[p], rest[half][i], rows + p * W * 16 + i * 2, i > 0);
                                mma(sum[p], cols[half][i], rows + BM * 8 + p * W * 16 + i * 2);
                                mma(sum[p], cols[half][i], rows + p * W * 16 + i * 2);
                            }
                            mma_commit();
                            if (half == 0 && p == 0) continue;
                            mma_wait<1>();   // the other part is done: of this step (p = 1), or of the step before
                            hold(sum[p ^ 1]);
#pragma unroll
                            for (int i = 0; i < W; i++) total[p ^ 1][i] += sum[p ^ 1][i];
                            if (half == 1 && p == 0) release(last);
                        }
                        last = s;
                        if (++s == STAGES) s = 0, parity ^= 1;
                    }
                    mma_wait<0>();
                    hold(sum[PARTS - 1]);
                    release(last);
#pragma unroll
                    for (int i = 0; i < W; i++) total[PARTS - 1][i] += sum[PARTS - 1][i];
                }
            }
#pragma unroll
            for (int p = 0; p < PARTS; p++)
#pragma unroll
                for (int i = 0; i < W; i += 4)
#pragma unroll
                    for (int e = 0; e < 2; e++) {
                        size_t r = row + p * W * 2 + i / 4 * 8 + lane % 4 * 2 + e, q = col + column;
                        if (r < m && q < n)
                            *(float2 *)(c + r * n + q) = {total[p][i + e], total[p][i + 2 + e]};
                    }
        }
    }
    if (CL > 1)
        asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
