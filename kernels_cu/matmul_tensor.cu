// Matrix product on the tensor cores: an instruction multiplies 16 x 8 by 8 x 8 elements (sm_80 on).
//
// A warp owns 64 x 64 elements of c (double: 32 x 64), and a step takes 128 bytes of each row of a. The lanes of a warp
// hold the operands and sums of an instruction as the PTX manual shows: `group` is lane / 4, `member` lane % 4. The
// order of a sum's products is free, and so are the row and column of c that a lane gets. So members take neighbours
// along k, groups neighbours along n: each load brings a pair that lies in registers as the instruction needs it.

#include "matrix.cuh"

#define XTK (128 / (int)sizeof(T))
#ifndef XSTAGES
#define XSTAGES 3  // steps whose tiles are in shared memory or being copied
#endif
#define XWARPS_M (WARPS % 8 == 0 ? 4 : WARPS % 2 == 0 ? 2 : 1)
#define XWARPS_N (WARPS / XWARPS_M > 0 ? WARPS / XWARPS_M : 1)
#define XWARP_M (256 / (int)sizeof(T))
#define XTILE_M (XWARPS_M * XWARP_M)
#define XTILE_N (XWARPS_N * 64)
// Lanes that load pairs together find them in different banks: rows of b are padded, and in rows of a, groups of 8
// elements change places, differently from row to row.
#define XROW_B (XTILE_N + VEC)
#define SWAPPED(row) ((row) % (XTK / 8) * 8)  // a tile's element (row, col) is at row * XTK + (col ^ SWAPPED(row))
#define XSTAGE (XTILE_M * XTK + XTK * XROW_B)  // elements of the tiles of one step

// sum += A B for one warp: A is 16 x 8, B 8 x 8, sum 16 x 8. Here A is 16 columns of b, B 8 rows of a, and sum a part
// of c, all transposed.
__device__ __forceinline__ void multiply_fragments(float (&sum)[4], const float (&a)[4], const float (&b)[2])
{
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])),
          "r"(__float_as_uint(a[3])), "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

__device__ __forceinline__ void multiply_fragments(double (&sum)[4], const double (&a)[4], const double (&b)[2])
{
#if __CUDA_ARCH__ >= 900
    asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
        : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#elif __CUDA_ARCH__ >= 800
#pragma unroll
    for (int e = 0; e < 4; e++)
        asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
            : "+d"(sum[e % 2 * 2]), "+d"(sum[e % 2 * 2 + 1])
            : "d"(a[e]), "d"(b[e / 2]));
#endif
}

// Starts the copy of vector `at` of the `across` vectors in a row of a tile. If rows do not start at multiples of 16
// bytes, it copies VEC single elements, neighbours by lane; those from `left` on are outside.
template <bool VECTORS>
__device__ __forceinline__ void copy_vector(T *to, const T *from, int at, int across, bool inside, int left,
                                            int swapped = 0)
{
    if (VECTORS)
        copy_async<16>(to + (at * VEC ^ swapped), from + at * VEC, inside);
    else
#pragma unroll
        for (int e = 0; e < VEC; e++, at += across)
            copy_async<sizeof(T)>(to + (at ^ swapped), from + at, inside && at < left);
}

// sum += A B with the 24 bits of float. An element is the 11 bits that the tensor cores read plus a rest, which float
// holds exactly. Of the four products of two such sums the smallest, rest times rest, is left out: under 2^-20 of the
// whole, and mostly far less. The tensor cores cut their sums off, so `part` has only 8 products, and `sum` adds such
// parts with rounding.
template <typename F>
__device__ __forceinline__ void multiply_split(F (&sum)[4], const F (&a)[4], const F (&b)[2])
{
    F part[4] = {}, rest_a[4], rest_b[2];
#pragma unroll
    for (int e = 0; e < 4; e++)
        rest_a[e] = a[e] - (F)__uint_as_float(__float_as_uint(a[e]) & 0xFFFFE000);
#pragma unroll
    for (int e = 0; e < 2; e++)
        rest_b[e] = b[e] - (F)__uint_as_float(__float_as_uint(b[e]) & 0xFFFFE000);
    multiply_fragments(part, rest_a, b);
    multiply_fragments(part, a, rest_b);
    multiply_fragments(part, a, b);
#pragma unroll
    for (int e = 0; e < 4; e++)
        sum[e] += part[e];
}

// Computes a block's tile of c. VECTORS: all rows start at multiples of 16 bytes. SPLIT: with all bits of float.
template <bool VECTORS, bool SPLIT = false>
__device__ __forceinline__ void tensor_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                            int k, int n, T *tiles)
{
    // Blocks that run together work on STRIP rows of tiles and few columns, so that their parts of a and b fit the L2.
    unsigned tiles_m = ((unsigned)m + XTILE_M - 1) / XTILE_M, tiles_n = ((unsigned)n + XTILE_N - 1) / XTILE_N;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * XTILE_M, col0 = (size_t)(number / high) * XTILE_N;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned lane = idx % 32, warp = idx / 32, group = lane / 4, member = lane % 4;
    unsigned from_m = warp / XWARPS_N * XWARP_M, from_n = warp % XWARPS_N * 64;

    // A thread copies one vector of every APART-th row of a tile, part by part, so that copies and products alternate.
    const int ACROSS_A = XTK / VEC, APART_A = 4 * XWARPS_M * XWARPS_N;
    const int ACROSS_B = XTILE_N / VEC, APART_B = XWARPS_M * VEC / 2;
    const int row_a = idx / ACROSS_A, row_b = idx / ACROSS_B, at_a = idx % ACROSS_A, at_b = idx % ACROSS_B;
    const T *from_a = a + (row0 + row_a) * k, *from_b = b + (size_t)row_b * n + col0;

    auto load = [&](int stage, unsigned k0, int part, int parts) {
        T *to_a = tiles + stage * XSTAGE + row_a * XTK;
        T *to_b = tiles + stage * XSTAGE + XTILE_M * XTK + row_b * XROW_B;
        int deep = k - k0, wide = n - (int)col0;  // columns left in the matrices; beyond them come zeros
        int rows = !VECTORS || at_a * VEC < deep ? m - (int)row0 - row_a : 0;
#pragma unroll
        for (int r = part * APART_A; r < XTILE_M; r += parts * APART_A)
            if (XTILE_M % APART_A == 0 || row_a + r < XTILE_M)
                copy_vector<VECTORS>(to_a + r * XTK, from_a + (size_t)r * k + k0, at_a, ACROSS_A, r < rows, deep,
                                     SWAPPED(row_a));  // r is a multiple of 4
        rows = !VECTORS || at_b * VEC < wide ? deep - row_b : 0;
#pragma unroll
        for (int r = part * APART_B; r < XTK; r += parts * APART_B)
            copy_vector<VECTORS>(to_b + r * XROW_B, from_b + (size_t)(k0 + r) * n, at_b, ACROSS_B, r < rows, wide);
    };

    T sum[4][XWARP_M / 8][4] = {};
    __align__(sizeof(Pair)) T columns[2][4][4], rows[2][XWARP_M / 8][2];
    auto fetch = [&](int into, int stage, int k0) {
        const T *tile_a = tiles + stage * XSTAGE + (from_m + group) * XTK + (k0 ^ SWAPPED(group)) + member * 2;
        const T *tile_b = tiles + stage * XSTAGE + XTILE_M * XTK + (k0 + member * 2) * XROW_B + from_n + group * 2;
#pragma unroll
        for (int s = 0; s < 4; s++)
#pragma unroll
            for (int e = 0; e < 2; e++)
                *(Pair *)&columns[into][s][e * 2] = *(const Pair *)(tile_b + e * XROW_B + s * 16);
#pragma unroll
        for (int r = 0; r < XWARP_M / 8; r++)
            *(Pair *)&rows[into][r] = *(const Pair *)(tile_a + r * 8 * XTK);
    };

    int now = 0, next = XSTAGES - 1;
#pragma unroll
    for (int stage = 0; stage < XSTAGES - 1; stage++) {
        load(stage, stage * XTK, 0, 1);
        commit_copies();
    }
    wait_copies<XSTAGES - 2>();
    __syncthreads();
    fetch(0, now, 0);
    for (unsigned k0 = 0; k0 < k; k0 += XTK)
#pragma unroll
        for (int i = 0; i < XTK / 8; i++) {
            load(next, k0 + (XSTAGES - 1) * XTK, i, XTK / 8);
            // Fetch the pairs of the next products before these products, also across steps.
            if (i < XTK / 8 - 1) {
                fetch((i + 1) % 2, now, (i + 1) * 8);
            } else {
                commit_copies();
                wait_copies<XSTAGES - 2>();
                __syncthreads();
                next = now;
                now = now + 1 < XSTAGES ? now + 1 : 0;
                fetch(0, now, 0);
            }
#pragma unroll
            for (int s = 0; s < 4; s++)
#pragma unroll
                for (int r = 0; r < XWARP_M / 8; r++)
                    if (SPLIT)
                        multiply_split(sum[s][r], columns[i % 2][s], rows[i % 2][r]);
                    else
                        multiply_fragments(sum[s][r], columns[i % 2][s], rows[i % 2][r]);
        }
#pragma unroll
    for (int s = 0; s < 4; s++)
#pragma unroll
        for (int r = 0; r < XWARP_M / 8; r++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                size_t row = row0 + from_m + r * 8 + member * 2 + e, col = col0 + from_n + s * 16 + group * 2;
                if (VECTORS) {
                    if (row < m && col < n)
                        *(Pair *)(c + row * n + col) = {sum[s][r][e], sum[s][r][e + 2]};
                } else {
                    if (row < m && col < n)
                        c[row * n + col] = sum[s][r][e];
                    if (row < m && col + 1 < n)
                        c[row * n + col + 1] = sum[s][r][e + 2];
                }
            }
}

// Multiplies 16 x 8 by 8 x 8 elements an instruction, on the tensor cores (sm_80 on).
// Of float they read TF32, the upper 10 of 23 bits of mantissa, with sums in float; of double they read all bits. What
// remains, for double: the arithmetic. For float: operands pass through registers; wgmma (sm_90a) reads them from
// shared memory itself.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_tensor(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];

    if (k % VEC == 0 && n % VEC == 0)
        tensor_tile<true>(a, b, c, m, k, n, (T *)tiles);
    else
        tensor_tile<false>(a, b, c, m, k, n, (T *)tiles);
}

// Multiplies all 24 bits of float on the tensor cores, as three products of TF32: a number is the sum of two.
// From 2048 on it is ahead of the multiply-add units, with no larger error. Infinities become NaN, because their rest
// is NaN. What remains: three times the instructions of tensor on the same operands, which were its limit.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_tensor_split(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];

    if (k % VEC == 0 && n % VEC == 0)
        tensor_tile<true, true>(a, b, c, m, k, n, (T *)tiles);
    else
        tensor_tile<false, true>(a, b, c, m, k, n, (T *)tiles);
}
