// Matrix product: C = A B.
//
// a is m rows by k columns, b is k by n, c is m by n, all row-major, of element type T.
// Each of the m * n elements of c is a sum of k products: 2 * m * n * k operations, but only
// (m * k + k * n + m * n) * sizeof(T) bytes must move. So with large matrices the arithmetic units are the limit.
// The difficulty is to feed them. A multiply-add takes two operands, and neither device memory, the caches nor
// shared memory deliver two for each of the 128 multiply-adds that a multiprocessor can do in a cycle.
//
// Read the ladder from top to bottom: each kernel uses an element more often, once it is fetched, than the one before.
// BDIMX and BDIMY are the threads of a block; x runs along the rows of c. Threads of these five kernels loop over c,
// so any grid works. The ladder goes on in matmul_warps.cu, matmul_tensor.cu, matmul_hopper.cu and matmul_tma.cu.

#include "matrix.cuh"

// Gives each thread one element of c: a row of a times a column of b.
// A warp reads neighbours of b and shares elements of a, so its accesses are coalesced. What remains: each multiply-add
// needs two loads, so the load units and the caches are the limit, at a small part of the arithmetic rate.
extern "C" __global__ void matmul_naive(const T *a, const T *b, T *c, int m, int k, int n)
{
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < m; row += (size_t)gridDim.y * BDIMY)
        for (size_t col = (size_t)blockIdx.x * BDIMX + threadIdx.x; col < n; col += (size_t)gridDim.x * BDIMX) {
            T sum = 0;
            for (size_t i = 0; i < k; i++)
                sum += a[row * k + i] * b[i * n + col];
            c[row * n + col] = sum;
        }
}

#define STEP (BDIMX < BDIMY ? BDIMX : BDIMY)  // columns of a, and rows of b, in the tiles of one step: 16 for 16x16

// Shares tiles of a and b in shared memory: a block reads each element once instead of once a thread.
// Device memory and caches see 1/16 of the accesses with a 16x16 block. Outside the matrices the tiles hold zeros.
// What remains: each multiply-add still takes two loads, now from shared memory.
extern "C" __global__ void matmul_tiled(const T *a, const T *b, T *c, int m, int k, int n)
{
    __shared__ T tile_a[BDIMY][STEP];
    __shared__ T tile_b[STEP][BDIMX];

    unsigned tx = threadIdx.x, ty = threadIdx.y;

    for (size_t row0 = (size_t)blockIdx.y * BDIMY; row0 < m; row0 += (size_t)gridDim.y * BDIMY)
        for (size_t col0 = (size_t)blockIdx.x * BDIMX; col0 < n; col0 += (size_t)gridDim.x * BDIMX) {
            size_t row = row0 + ty, col = col0 + tx;
            T sum = 0;
            for (size_t k0 = 0; k0 < k; k0 += STEP) {
                if (tx < STEP)
                    tile_a[ty][tx] = row < m && k0 + tx < k ? a[row * k + k0 + tx] : (T)0;
                if (ty < STEP)
                    tile_b[ty][tx] = k0 + ty < k && col < n ? b[(k0 + ty) * n + col] : (T)0;
                __syncthreads();
#pragma unroll
                for (int i = 0; i < STEP; i++)
                    sum += tile_a[ty][i] * tile_b[i][tx];
                __syncthreads();
            }
            if (row < m && col < n)
                c[row * n + col] = sum;
        }
}

#ifndef TM
#define TM 8  // rows of a thread's sums
#endif
#ifndef TN
#define TN 8  // columns of a thread's sums
#endif
#ifndef TK
#define TK 8  // columns of a, and rows of b, in the tiles of one step
#endif
// Two pairs of tiles must fit the 48 KiB of static shared memory. The host refuses other blocks for these kernels. But
// this file must still compile for such blocks, because other kernels can use them.
#define TILE_BYTES (2 * TK * (BDIMY * TM + VEC + BDIMX * TN) * (int)sizeof(T))
#define FIT (TILE_BYTES <= 48 * 1024)
#define TILE_M (FIT ? BDIMY * TM : TM)
#define TILE_N (FIT ? BDIMX * TN : TN)

// Gives each thread 8 x 8 elements of c, BDIMY rows and BDIMX columns apart, whose sums stay in registers.
// The 16 elements that a thread loads from shared memory serve 64 multiply-adds: a quarter of a load for each
// instead of two. What remains: every access moves one element, and takes one instruction.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_registers(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    __shared__ T tile_a[TILE_M][TK];
    __shared__ T tile_b[TK][TILE_N];

    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned idx = ty * BDIMX + tx;

    for (size_t row0 = (size_t)blockIdx.y * TILE_M; row0 < m; row0 += (size_t)gridDim.y * TILE_M)
        for (size_t col0 = (size_t)blockIdx.x * TILE_N; col0 < n; col0 += (size_t)gridDim.x * TILE_N) {
            T sum[TM][TN] = {};
            for (size_t k0 = 0; k0 < k; k0 += TK) {
#pragma unroll
                for (unsigned i = idx; i < TILE_M * TK; i += BLOCK) {
                    size_t row = row0 + i / TK, col = k0 + i % TK;
                    tile_a[i / TK][i % TK] = row < m && col < k ? a[row * k + col] : (T)0;
                }
#pragma unroll
                for (unsigned i = idx; i < TK * TILE_N; i += BLOCK) {
                    size_t row = k0 + i / TILE_N, col = col0 + i % TILE_N;
                    tile_b[i / TILE_N][i % TILE_N] = row < k && col < n ? b[row * n + col] : (T)0;
                }
                __syncthreads();
#pragma unroll
                for (int i = 0; i < TK; i++) {
                    T column[TM], line[TN];
#pragma unroll
                    for (int r = 0; r < TM; r++)
                        column[r] = tile_a[ty + r * BDIMY][i];
#pragma unroll
                    for (int s = 0; s < TN; s++)
                        line[s] = tile_b[i][tx + s * BDIMX];
#pragma unroll
                    for (int r = 0; r < TM; r++)
#pragma unroll
                        for (int s = 0; s < TN; s++)
                            sum[r][s] += column[r] * line[s];
                }
                __syncthreads();
            }
#pragma unroll
            for (int r = 0; r < TM; r++)
#pragma unroll
                for (int s = 0; s < TN; s++) {
                    size_t row = row0 + ty + r * BDIMY, col = col0 + tx + s * BDIMX;
                    if (row < m && col < n)
                        c[row * n + col] = sum[r][s];
                }
        }
}

// Reads VEC elements of a row from column `col` on; elements outside the matrix are 0. If the number of columns is a
// multiple of VEC, rows start at multiples of 16 bytes, and one load suffices.
__device__ __forceinline__ Vector read_vector(const T *matrix, size_t rows, size_t cols, size_t row, size_t col)
{
    Vector v = {};
    if (cols % VEC == 0) {
        if (row < rows && col < cols)
            v.all = *(const uint4 *)(matrix + row * cols + col);
    } else
#pragma unroll
        for (int e = 0; e < VEC; e++)
            if (row < rows && col + e < cols)
                v.at[e] = matrix[row * cols + col + e];
    return v;
}

// Writes VEC elements of a row, as read_vector reads them.
__device__ __forceinline__ void write_vector(T *matrix, size_t rows, size_t cols, size_t row, size_t col, Vector v)
{
    if (cols % VEC == 0) {
        if (row < rows && col < cols)
            *(uint4 *)(matrix + row * cols + col) = v.all;
    } else
#pragma unroll
        for (int e = 0; e < VEC; e++)
            if (row < rows && col + e < cols)
                matrix[row * cols + col + e] = v.at[e];
}

#define ROW_A (TILE_M + VEC)   // the tile of a is transposed, so that a thread's rows are neighbours
#define VECS_A (TILE_M * TK / VEC)
#define VECS_B (TK * TILE_N / VEC)

// Adds the products of one step: column i of the tile of a times row i of the tile of b.
__device__ __forceinline__ void add_products(T (&sum)[TM][TN], const T (&tile_a)[TK][ROW_A], const T (&tile_b)[TK][TILE_N],
                                             unsigned tx, unsigned ty)
{
#pragma unroll
    for (int i = 0; i < TK; i++) {
        Vector column[TM / VEC], line[TN / VEC];
#pragma unroll
        for (int r = 0; r < TM / VEC; r++)
            column[r].all = *(const uint4 *)&tile_a[i][(ty + r * BDIMY) * VEC];
#pragma unroll
        for (int s = 0; s < TN / VEC; s++)
            line[s].all = *(const uint4 *)&tile_b[i][(tx + s * BDIMX) * VEC];
#pragma unroll
        for (int r = 0; r < TM; r++)
#pragma unroll
            for (int s = 0; s < TN; s++)
                sum[r][s] += column[r / VEC].at[r % VEC] * line[s / VEC].at[s % VEC];
    }
}

// Writes a thread's sums to c.
__device__ __forceinline__ void write_sums(T *c, size_t m, size_t n, size_t row0, size_t col0, const T (&sum)[TM][TN],
                                           unsigned tx, unsigned ty)
{
#pragma unroll
    for (int r = 0; r < TM; r++)
#pragma unroll
        for (int s = 0; s < TN; s += VEC) {
            Vector v;
#pragma unroll
            for (int e = 0; e < VEC; e++)
                v.at[e] = sum[r][s + e];
            write_vector(c, m, n, row0 + (ty + r / VEC * BDIMY) * VEC + r % VEC, col0 + (tx + s / VEC * BDIMX) * VEC, v);
        }
}

// Moves 16 bytes an access, in device and in shared memory: a quarter of the load instructions for float.
// A thread's rows and columns are now groups of four neighbours; for that the tile of a is transposed in shared memory.
// What remains: a block computes nothing while it waits for the tiles of the next step.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_vector(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    __shared__ __align__(16) T tile_a[TK][ROW_A];
    __shared__ __align__(16) T tile_b[TK][TILE_N];

    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned idx = ty * BDIMX + tx;

    for (size_t row0 = (size_t)blockIdx.y * TILE_M; row0 < m; row0 += (size_t)gridDim.y * TILE_M)
        for (size_t col0 = (size_t)blockIdx.x * TILE_N; col0 < n; col0 += (size_t)gridDim.x * TILE_N) {
            T sum[TM][TN] = {};
            for (size_t k0 = 0; k0 < k; k0 += TK) {
#pragma unroll
                for (unsigned i = idx; i < VECS_A; i += BLOCK) {
                    unsigned row = i / (TK / VEC), col = i % (TK / VEC) * VEC;
                    Vector v = read_vector(a, m, k, row0 + row, k0 + col);
#pragma unroll
                    for (int e = 0; e < VEC; e++)
                        tile_a[col + e][row] = v.at[e];
                }
#pragma unroll
                for (unsigned i = idx; i < VECS_B; i += BLOCK) {
                    unsigned row = i / (TILE_N / VEC), col = i % (TILE_N / VEC) * VEC;
                    *(uint4 *)&tile_b[row][col] = read_vector(b, k, n, k0 + row, col0 + col).all;
                }
                __syncthreads();
                add_products(sum, tile_a, tile_b, tx, ty);
                __syncthreads();
            }
            write_sums(c, m, n, row0, col0, sum, tx, ty);
        }
}

#define EACH_A ((VECS_A + BLOCK - 1) / BLOCK)  // vectors of a tile that a thread moves
#define EACH_B ((VECS_B + BLOCK - 1) / BLOCK)

// Starts the loads of the next step before the sums of this one, and keeps two pairs of tiles.
// The loads wait in registers while the block computes, and a step takes one barrier instead of two.
// What remains: four 16-byte loads for 64 multiply-adds fill the bandwidth of shared memory, because each brings a warp
// 512 bytes, and 128 bytes pass in a cycle.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_double_buffer(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    __shared__ __align__(16) T tile_a[2][TK][ROW_A];
    __shared__ __align__(16) T tile_b[2][TK][TILE_N];

    unsigned tx = threadIdx.x, ty = threadIdx.y;
    unsigned idx = ty * BDIMX + tx;

    for (size_t row0 = (size_t)blockIdx.y * TILE_M; row0 < m; row0 += (size_t)gridDim.y * TILE_M)
        for (size_t col0 = (size_t)blockIdx.x * TILE_N; col0 < n; col0 += (size_t)gridDim.x * TILE_N) {
            T sum[TM][TN] = {};
            unsigned now = 0;
            for (size_t k0 = 0; k0 < k + TK; k0 += TK, now ^= 1) {
                Vector next_a[EACH_A], next_b[EACH_B];
                if (k0 < k) {
#pragma unroll
                    for (unsigned e = 0; e < EACH_A; e++) {
                        unsigned i = idx + e * BLOCK;
                        if (i < VECS_A)
                            next_a[e] = read_vector(a, m, k, row0 + i / (TK / VEC), k0 + i % (TK / VEC) * VEC);
                    }
#pragma unroll
                    for (unsigned e = 0; e < EACH_B; e++) {
                        unsigned i = idx + e * BLOCK;
                        if (i < VECS_B)
                            next_b[e] = read_vector(b, k, n, k0 + i / (TILE_N / VEC), col0 + i % (TILE_N / VEC) * VEC);
                    }
                }
                if (k0 > 0)
                    add_products(sum, tile_a[now ^ 1], tile_b[now ^ 1], tx, ty);
                if (k0 < k) {
#pragma unroll
                    for (unsigned e = 0; e < EACH_A; e++) {
                        unsigned i = idx + e * BLOCK;
                        if (i < VECS_A)
#pragma unroll
                            for (int v = 0; v < VEC; v++)
                                tile_a[now][i % (TK / VEC) * VEC + v][i / (TK / VEC)] = next_a[e].at[v];
                    }
#pragma unroll
                    for (unsigned e = 0; e < EACH_B; e++) {
                        unsigned i = idx + e * BLOCK;
                        if (i < VECS_B)
                            *(uint4 *)&tile_b[now][i / (TILE_N / VEC)][i % (TILE_N / VEC) * VEC] = next_b[e].all;
                    }
                }
                __syncthreads();
            }
            write_sums(c, m, n, row0, col0, sum, tx, ty);
        }
}
