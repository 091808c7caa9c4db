// Matrix product: C = A B.
//
// a is m rows by k columns, b is k by n, c is m by n, all row-major, of element type T.
// Each of the m * n elements of c is a sum of k products, 2 * m * n * k operations, while only
// (m * k + k * n + m * n) * sizeof(T) bytes must move: with large matrices the arithmetic units are the limit.
// The difficulty is to feed them. A multiply-add takes two operands, and neither device memory, the caches nor
// shared memory delivers two for each of the 128 multiply-adds that a multiprocessor can do in a cycle.
//
// Read the ladder from top to bottom: each kernel uses every element it fetches more often than the one before.
// BDIMX and BDIMY are the threads of a block; x runs along the rows of c. The first five kernels, tma and tma-split
// stride over c, so that any grid is right. Offsets are size_t because m * k, k * n and m * n may exceed 2^32.

#include <cuda.h>

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 16
#endif
#ifndef BDIMY
#define BDIMY 16
#endif

#define BLOCK (BDIMX * BDIMY)  // threads in a block

// Gives each thread one element of c: a row of a times a column of b.
// A warp reads neighbours of b and shares elements of a, so its accesses are coalesced. What remains: two loads
// precede each multiply-add, and the load units and the caches are the limit, at a small part of the arithmetic.
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
#define TM 8  // rows of c that a thread sums up
#endif
#ifndef TN
#define TN 8  // columns of c that a thread sums up
#endif
#ifndef TK
#define TK 8  // columns of a, and rows of b, in the tiles of one step
#endif
#define VEC (16 / (int)sizeof(T))  // elements in 16 bytes
// Two pairs of tiles fit the 48 KiB of static shared memory. A block for which they do not is refused before the
// launch; the text still has to compile for it, because of the kernels that take it.
#define TILE_BYTES (2 * TK * (BDIMY * TM + VEC + BDIMX * TN) * (int)sizeof(T))
#define FIT (TILE_BYTES <= 48 * 1024)
#define TILE_M (FIT ? BDIMY * TM : TM)
#define TILE_N (FIT ? BDIMX * TN : TN)

// Gives each thread 8 x 8 elements of c, BDIMY rows and BDIMX columns apart, whose sums stay in registers.
// The 16 elements that a thread loads from shared memory serve 64 multiply-adds: a quarter of a load for each
// instead of two. What remains: every access moves one element, and each takes an instruction of its own.
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

union Vector { uint4 all; T at[VEC]; };

// Reads VEC elements of a row of a matrix from column `col` on; what lies outside is 0. Rows start at multiples of
// 16 bytes, and one load will do, where the number of columns is a multiple of VEC.
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

#define ROW_A (TILE_M + VEC)   // the tile of a lies transposed, so that a thread's rows are neighbours
#define VECS_A (TILE_M * TK / VEC)
#define VECS_B (TK * TILE_N / VEC)

// The products of one step: column i of the tile of a times row i of the tile of b.
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
// A thread's rows and columns are now neighbours by fours, and the tile of a lies transposed in shared memory for it.
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
// What remains: the four 16-byte loads from shared memory for 64 multiply-adds fill its bandwidth, since each brings
// 512 bytes to a warp and 128 bytes pass in a cycle.
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

// From here a warp owns a part of c: 4 x 8 lanes with WTM x WTN sums each, 64 x 64 for float.
#ifndef WTM
#define WTM (64 / (int)sizeof(T))  // rows of c that a thread sums up
#endif
#ifndef WTN
#define WTN 8  // columns of c that a thread sums up
#endif
#ifndef WTK
#define WTK 16  // columns of a, and rows of b, in the tiles of one step
#endif
#ifndef STAGES
#define STAGES (sizeof(T) == 4 ? 3 : 2)  // steps whose tiles are in shared memory or on the way
#endif
#define WARPS (BLOCK / 32)  // WARPS_M x WARPS_N: 2 x 4 of 8
#ifndef WARPS_N
#define WARPS_N (WARPS % 8 == 0 ? 4 : WARPS % 2 == 0 ? 2 : 1)  // warps side by side along the columns of c
#endif
#define WARPS_M (WARPS / WARPS_N > 0 ? WARPS / WARPS_N : 1)
#define WARP_M (4 * WTM)
#define WARP_N (8 * WTN)
#define WTILE_M (WARPS_M * WARP_M)
#define WTILE_N (WARPS_N * WARP_N)
#define WROW_A (WTILE_M + 4)
#define WSTAGE (WTK * (WROW_A + WTILE_N))  // elements of the tiles of one step
#define WVECS (WTILE_N / VEC)              // vectors in a row of the tile of b

// Copies BYTES (4, 8 or 16) from device to shared memory with no register on the way; zeros where !inside.
template <int BYTES>
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside)
{
#if __CUDA_ARCH__ >= 800
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if (BYTES == 16)  // cg: past the L1 cache, which ca takes what it brings
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(BYTES),
                     "r"(inside ? BYTES : 0)
                     : "memory");
#else
#pragma unroll
    for (int i = 0; i < BYTES / 4; i++)
        ((unsigned *)to)[i] = inside ? ((const unsigned *)from)[i] : 0;
#endif
}

// Ends a group of copies.
__device__ __forceinline__ void commit_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most LEFT of this thread's groups of copies are under way.
template <int LEFT>
__device__ __forceinline__ void wait_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// The first row and column of c, in a block's tile, of those that a thread sums up.
__device__ __forceinline__ void find_sums(unsigned &from_m, unsigned &from_n)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32;
    // Neighbouring lanes share their columns, lanes two apart their rows: so a half warp's 16-byte loads merge.
    unsigned lane_m = lane % 2 + lane / 16 * 2, lane_n = lane / 2 % 8;
    from_m = warp / WARPS_N * WARP_M + lane_m * VEC, from_n = warp % WARPS_N * WARP_N + lane_n * VEC;
}

// Sums up a thread's products. VECTORS: rows of b and c start at multiples of 16 bytes. WHOLE: no element of the block's
// tiles is outside, and those that a thread copies of b are below each other: no access is preceded by a check.
template <bool VECTORS, bool WHOLE>
__device__ __forceinline__ void sum_warp_tile(T (&sum)[WTM][WTN], const T *__restrict__ a, const T *__restrict__ b,
                                              int m, int k, int n, size_t row0, size_t col0,
                                              T (&tile_a)[STAGES][WTK][WROW_A], T (&tile_b)[STAGES][WTK][WTILE_N])
{
    const int width = VECTORS ? VEC : 1;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, from_m, from_n;
    find_sums(from_m, from_n);

    // Of the tile of a, a thread copies elements of one column, ROWS_APART rows from each other.
    const int ROWS_APART = BLOCK / WTK, EACH = WTILE_M / ROWS_APART;
    int row_a = idx / WTK, col_a = idx % WTK;
    const T *from_a = a + (row0 + row_a) * k + col_a;
    const T *from_b = b + (size_t)(idx / WVECS) * n + col0 + idx % WVECS * VEC;
    long long rows_left = ((long long)m - (long long)row0 - row_a + ROWS_APART - 1) / ROWS_APART;

    // Starts the copies of a step's tiles that have their turn before products i. Those of whole tiles are spread over
    // half a step, so that the units that also load the operands are never handed all at once.
    auto load = [&](int stage, int k0, int i) {
        const int TURNS = (WTK + 1) / 2, LINES = WTK * WVECS / BLOCK;
        if (WHOLE) {
#pragma unroll
            for (int e = 0; e < EACH; e++)
                if (e * TURNS / EACH == i)
                    copy_async<sizeof(T)>(&tile_a[stage][col_a][row_a + e * ROWS_APART],
                                          from_a + (size_t)e * ROWS_APART * k, true);
#pragma unroll
            for (int e = 0; e < LINES; e++)
                if (e * TURNS / LINES == i)
                    copy_async<16>(&tile_b[stage][idx / WVECS + e * (BLOCK / WVECS)][idx % WVECS * VEC],
                                   from_b + (size_t)e * (BLOCK / WVECS) * n, true);
        } else if (i == 0) {
            const T *from = from_a;
            int inside = k0 + col_a < k ? (int)rows_left : 0;
#pragma unroll
            for (int e = 0; e < EACH; e++, from += (size_t)ROWS_APART * k)
                copy_async<sizeof(T)>(&tile_a[stage][col_a][row_a + e * ROWS_APART], from, e < inside);
#pragma unroll
            for (unsigned v = idx; v < WTK * WTILE_N / width; v += BLOCK) {
                int row = v / (WTILE_N / width), col = v % (WTILE_N / width) * width;
                copy_async<width * sizeof(T)>(&tile_b[stage][row][col], b + (size_t)(k0 + row) * n + col0 + col,
                                              k0 + row < k && col0 + col < n);
            }
        }
    };
    auto end_load = [&](int k0) {
        bool more = !WHOLE || k0 + WTK < k;  // else the last of whole tiles are copied again, and not used
        from_a += more ? WTK : 0;
        from_b += more ? (size_t)WTK * n : 0;
        commit_copies();
    };

    Vector column[2][WTM / VEC], line[2][WTN / VEC];
    auto fetch = [&](int into, int stage, int i) {
#pragma unroll
        for (int r = 0; r < WTM / VEC; r++)
            column[into][r].all = *(const uint4 *)&tile_a[stage][i][from_m + r * 4 * VEC];
#pragma unroll
        for (int s = 0; s < WTN / VEC; s++)
            line[into][s].all = *(const uint4 *)&tile_b[stage][i][from_n + s * 8 * VEC];
    };

#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
#pragma unroll
        for (int turn = 0; turn < WTK; turn++)
            load(stage, stage * WTK, turn);
        end_load(stage * WTK);
    }
    wait_copies<STAGES - 2>();
    __syncthreads();
    fetch(0, 0, 0);
    int now = 0, next = STAGES - 1;
    for (int k0 = 0; k0 < k; k0 += WTK) {
#pragma unroll
        for (int i = 0; i < WTK; i++) {
            // Fetch the operands of the next products before these products, the next step's too.
            if (i < WTK - 1)
                fetch((i + 1) % 2, now, i + 1);
            load(next, k0 + (STAGES - 1) * WTK, i);
            if (i == WTK - 1) {
                end_load(k0 + (STAGES - 1) * WTK);
                wait_copies<STAGES - 2>();
                __syncthreads();
                next = now;
                now = now + 1 < STAGES ? now + 1 : 0;
                if (WTK % 2 == 0)
                    fetch(0, now, 0);
            }
#pragma unroll
            for (int r = 0; r < WTM; r++)
#pragma unroll
                for (int q = 0; q < WTN; q++) {
                    int s = r % 2 ? WTN - 1 - q : q;  // so that products share an operand where a row ends, too
                    sum[r][s] += column[i % 2][r / VEC].at[r % VEC] * line[i % 2][s / VEC].at[s % VEC];
                }
        }
        if (WTK % 2)
            fetch(0, now, 0);
    }
}

// Writes a thread's sums into a tile of c, of which `rows` rows and `cols` columns are inside.
template <bool VECTORS, bool WHOLE>
__device__ __forceinline__ void write_warp_tile(const T (&sum)[WTM][WTN], T *tile, size_t pitch, long long rows,
                                                long long cols)
{
    unsigned from_m, from_n;
    find_sums(from_m, from_n);
#pragma unroll
    for (int r = 0; r < WTM; r++)
#pragma unroll
        for (int s = 0; s < WTN; s += VEC) {
            Vector v;
#pragma unroll
            for (int e = 0; e < VEC; e++)
                v.at[e] = sum[r][s + e];
            unsigned row = from_m + r / VEC * 4 * VEC + r % VEC, col = from_n + s * 8;
            if (VECTORS) {
                if (WHOLE || (row < rows && col < cols))
                    *(uint4 *)(tile + row * pitch + col) = v.all;
            } else
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    if (row < rows && col + e < cols)
                        tile[row * pitch + col + e] = v.at[e];
        }
}

template <bool VECTORS, bool WHOLE>
__device__ __forceinline__ void warp_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                          int k, int n, size_t row0, size_t col0, T (&tile_a)[STAGES][WTK][WROW_A],
                                          T (&tile_b)[STAGES][WTK][WTILE_N])
{
    T sum[WTM][WTN] = {};
    sum_warp_tile<VECTORS, WHOLE>(sum, a, b, m, k, n, row0, col0, tile_a, tile_b);
    write_warp_tile<VECTORS, WHOLE>(sum, c + row0 * n + col0, n, (long long)m - row0, (long long)n - col0);
}

// Gives each thread 16 x 8 elements of c and each warp a square of 64 x 64, and copies tiles without registers.
// Six 16-byte loads serve 128 multiply-adds, and the lanes are numbered so that half a warp's loads merge: the
// multiply-add units become the limit. STAGES steps are in flight through cp.async, asynchronous from sm_80 on; the
// copies of a step start one by one between products, not in a crowd that the operands' loads would wait behind. Two
// sets of operands take turns, and a product shares one with the product before, which saves reading it again.
// What remains is the arithmetic of float itself; only the tensor cores do more of it.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_warp_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];  // more than the 48 KiB that a static array may have
    T(&tile_a)[STAGES][WTK][WROW_A] = *(T(*)[STAGES][WTK][WROW_A])tiles;
    T(&tile_b)[STAGES][WTK][WTILE_N] = *(T(*)[STAGES][WTK][WTILE_N])(&tile_a + 1);

    unsigned tiles_m = ((unsigned)m + WTILE_M - 1) / WTILE_M;
    size_t row0 = (size_t)(blockIdx.x % tiles_m) * WTILE_M, col0 = (size_t)(blockIdx.x / tiles_m) * WTILE_N;
    const bool below = BLOCK % WVECS == 0 && WTK * WVECS % BLOCK == 0;
    bool whole = n % VEC == 0 && k % WTK == 0 && k >= STAGES * WTK && row0 + WTILE_M <= m && col0 + WTILE_N <= n;
    if (below && whole)
        warp_tile<true, below>(a, b, c, m, k, n, row0, col0, tile_a, tile_b);
    else if (n % VEC == 0)
        warp_tile<true, false>(a, b, c, m, k, n, row0, col0, tile_a, tile_b);
    else
        warp_tile<false, false>(a, b, c, m, k, n, row0, col0, tile_a, tile_b);
}

// The tensor rung: a warp owns 64 x 64 elements of c (double: 32 x 64), and a step takes 128 bytes of each row of a.
#define XTK (128 / (int)sizeof(T))
#ifndef XSTAGES
#define XSTAGES 3  // steps whose tiles are in shared memory or on the way
#endif
#ifndef STRIP
#define STRIP 16  // rows of tiles that blocks work on at the same time
#endif
#define XWARPS_M (WARPS % 8 == 0 ? 4 : WARPS % 2 == 0 ? 2 : 1)
#define XWARPS_N (WARPS / XWARPS_M > 0 ? WARPS / XWARPS_M : 1)
#define XWARP_M (256 / (int)sizeof(T))
#define XTILE_M (XWARPS_M * XWARP_M)
#define XTILE_N (XWARPS_N * 64)
// Lanes that load pairs of elements at once find them in different banks: the rows of b are padded, and in those of a
// groups of 8 elements change places, differently from row to row.
#define XROW_B (XTILE_N + VEC)
#define SWAPPED(row) ((row) % (XTK / 8) * 8)  // a tile's element (row, col) is at row * XTK + (col ^ SWAPPED(row))
#define XSTAGE (XTILE_M * XTK + XTK * XROW_B)  // elements of the tiles of one step

// sum += A B for one warp: A is 16 x 8, B 8 x 8, sum 16 x 8, spread over the lanes as the PTX manual shows: `group` is
// lane / 4, `member` lane % 4. Here A is 16 columns of b, B 8 rows of a, and sum a part of c, all transposed.
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

// Starts the copy of vector `at` of the `across` in a row of a tile. Where rows do not start at multiples of 16 bytes
// it copies as many single elements, neighbours by lane, of which those from `left` on are outside.
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

struct __align__(2 * sizeof(T)) Pair { T x, y; };

// sum += A B with the 24 bits of float: an element is the 11 bits that the tensor cores read and a rest, which float holds
// exactly. Of the four products of two such sums the smallest, rest times rest, is left out: under 2^-20 of the whole,
// and mostly far less. The tensor cores cut their sums off, so each has 8 products only, and sum itself grows by
// additions that round.
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

template <bool VECTORS, bool SPLIT = false>  // VECTORS: all rows start at multiples of 16 bytes
__device__ __forceinline__ void tensor_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                            int k, int n, T *tiles)
{
    // The blocks of a moment work on STRIP rows of tiles and few columns, whose parts of a and b fit the L2 cache.
    unsigned tiles_m = ((unsigned)m + XTILE_M - 1) / XTILE_M, tiles_n = ((unsigned)n + XTILE_N - 1) / XTILE_N;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * XTILE_M, col0 = (size_t)(number / high) * XTILE_N;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned lane = idx % 32, warp = idx / 32, group = lane / 4, member = lane % 4;
    unsigned from_m = warp / XWARPS_N * XWARP_M, from_n = warp % XWARPS_N * 64;

    // A thread copies one vector of every APART-th row of a tile, part by part: so that copies and products alternate.
    const int ACROSS_A = XTK / VEC, APART_A = 4 * XWARPS_M * XWARPS_N;
    const int ACROSS_B = XTILE_N / VEC, APART_B = XWARPS_M * VEC / 2;
    const int row_a = idx / ACROSS_A, row_b = idx / ACROSS_B, at_a = idx % ACROSS_A, at_b = idx % ACROSS_B;
    const T *from_a = a + (row0 + row_a) * k, *from_b = b + (size_t)row_b * n + col0;

    auto load = [&](int stage, unsigned k0, int part, int parts) {
        T *to_a = tiles + stage * XSTAGE + row_a * XTK;
        T *to_b = tiles + stage * XSTAGE + XTILE_M * XTK + row_b * XROW_B;
        int deep = k - k0, wide = n - (int)col0;  // what is left of the matrices; beyond it come zeros
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

    // The order of a sum's products is free, and so is which row or column of c a lane has: members take neighbours
    // along k, groups neighbours along n. So every load brings a pair that lies in registers as the instruction wants.
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
            // Fetch the next products' pairs before these products, the next step's too.
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
// Of float they take TF32, the upper 10 of 23 bits of mantissa, with sums in float; of double they take all.
// What remains, for double, is the arithmetic. For float the operands' way through registers: wgmma (sm_90a) reads them
// from shared memory itself.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_tensor(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];

    if (k % VEC == 0 && n % VEC == 0)
        tensor_tile<true>(a, b, c, m, k, n, (T *)tiles);
    else
        tensor_tile<false>(a, b, c, m, k, n, (T *)tiles);
}

// The next rung copies both matrices as they lie, 16 bytes a copy. A warp owns 64 x 64 elements of c (double: 64 x 32) as
// in warp-tile, a thread SLICE_M x SLICE_N of them: of a its vectors run along k and serve VEC products, of b along n.
#define SLICE_M 8                      // rows of c that a thread sums up
#define SLICE_N (64 / (int)sizeof(T))  // columns of c that a thread sums up
#ifndef SLICE_STAGES
#define SLICE_STAGES 3  // steps whose tiles are in shared memory or on the way
#endif
#ifndef SLICES
#define SLICES 1  // parts of a step that groups of warps share
#endif
// Warps that share a part, side by side and in all; then what a step takes, for one part or several.
#define SLICE_WARPS(parts) (WARPS / (parts) > 0 ? WARPS / (parts) : 1)
#define SLICE_WIDE(parts) (SLICE_WARPS(parts) % 8 == 0 ? 4 : SLICE_WARPS(parts) % 2 == 0 ? 2 : 1)
#define SLICE_TILE_M(parts) (SLICE_WARPS(parts) / SLICE_WIDE(parts) * 64)
#define SLICE_TILE_N(parts) (SLICE_WIDE(parts) * 4 * SLICE_N)
#define SLICE_TK(parts) ((parts) > 1 ? 8 * (parts) : 16)                  // columns of a, and rows of b
#define SLICE_ROW_A(parts) (SLICE_TK(parts) + VEC)                        // padded: eight rows are in different banks
#define SLICE_STAGE(parts) (SLICE_TILE_M(parts) * SLICE_ROW_A(parts) + SLICE_TK(parts) * SLICE_TILE_N(parts))

// Starts the copy of one vector, or of as many single elements where rows do not start at multiples of 16 bytes: those
// from `left` on are outside and become zeros.
template <bool VECTORS>
__device__ __forceinline__ void copy_some(T *to, const T *from, int left)
{
    if (VECTORS)
        copy_async<16>(to, from, left > 0);
    else
#pragma unroll
        for (int e = 0; e < VEC; e++)
            if (sizeof(T) < 4)  // which cannot be copied on its own
                to[e] = e < left ? from[e] : (T)0;
            else
                copy_async<sizeof(T) < 4 ? 4 : sizeof(T)>(to + e, from + e, e < left);
}

template <bool VECTORS, int PARTS>  // VECTORS: all rows start at multiples of 16 bytes
__device__ __forceinline__ void sliced_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                           int k, int n, T *tiles)
{
    const int tall = SLICE_TILE_M(PARTS), broad = SLICE_TILE_N(PARTS), step = SLICE_TK(PARTS);
    const int pitch = SLICE_ROW_A(PARTS), size = SLICE_STAGE(PARTS), beside = SLICE_WIDE(PARTS);
    // The blocks of a moment work on STRIP rows of tiles and few columns, whose parts of a and b fit the L2 cache.
    unsigned tiles_m = ((unsigned)m + tall - 1) / tall, tiles_n = ((unsigned)n + broad - 1) / broad;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * tall, col0 = (size_t)(number / high) * broad;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned lane = idx % 32, warp = idx / 32, part = warp / SLICE_WARPS(PARTS), mine = warp % SLICE_WARPS(PARTS);
    unsigned from_m = mine / beside * 64 + lane / 2 % 8;
    unsigned from_n = mine % beside * 4 * SLICE_N + (lane % 2 + lane / 16 * 2) * VEC;

    // A thread copies one vector of every APART-th row of a tile. Rows and columns beyond the matrix are those at its
    // edge again: they make sums that nobody writes.
    const int across_a = step / VEC, apart_a = BLOCK / across_a, each_a = (tall + apart_a - 1) / apart_a;
    const int across_b = broad / VEC, apart_b = BLOCK / across_b, each_b = (step + apart_b - 1) / apart_b;
    const int row_a = idx / across_a, at_a = idx % across_a * VEC, row_b = idx / across_b, at_b = idx % across_b * VEC;
    const T *from_a[each_a];
#pragma unroll
    for (int e = 0; e < each_a; e++)
        from_a[e] = a + min(row0 + row_a + e * apart_a, (size_t)m - 1) * k + at_a;
    int wide = n - (int)col0 - at_b;  // what is left of a row of b
    const T *from_b = b + (size_t)row_b * n + (VECTORS ? min(col0 + at_b, (size_t)n - VEC) : col0 + at_b);

    int deep = k;  // what is left of k
    auto load = [&](int stage) {
        T *to_a = tiles + stage * size + row_a * pitch + at_a;
        T *to_b = tiles + stage * size + tall * pitch + row_b * broad + at_b;
        const T *line = from_b;
#pragma unroll
        for (int e = 0; e < each_a; e++) {
            if (tall % apart_a == 0 || row_a + e * apart_a < tall)
                copy_some<VECTORS>(to_a + e * apart_a * pitch, from_a[e], deep - at_a);
            from_a[e] += step;
        }
#pragma unroll
        for (int e = 0; e < each_b; e++, line += (size_t)apart_b * n)
            if (step % apart_b == 0 || row_b + e * apart_b < step)
                copy_some<VECTORS>(to_b + e * apart_b * broad, line,
                                   row_b + e * apart_b < deep ? VECTORS ? 1 : wide : 0);
        from_b += (size_t)step * n;
        deep -= step;
        commit_copies();
    };

    const int depth = step / PARTS;  // of a step, for one part
    Vector column[2][SLICE_M], line[2][SLICE_N / VEC];
    auto fetch_a = [&](int into, int stage, int i) {
        const T *from = tiles + stage * size + from_m * pitch + part * depth + i;
#pragma unroll
        for (int r = 0; r < SLICE_M; r++)
            column[into][r].all = *(const uint4 *)(from + r * 8 * pitch);
    };
    auto fetch_b = [&](int into, int stage, int i) {
        const T *from = tiles + stage * size + tall * pitch + (part * depth + i) * broad + from_n;
#pragma unroll
        for (int s = 0; s < SLICE_N / VEC; s++)
            line[into][s].all = *(const uint4 *)(from + s * 4 * VEC);
    };

#pragma unroll
    for (int stage = 0; stage < SLICE_STAGES - 1; stage++)
        load(stage);
    wait_copies<SLICE_STAGES - 2>();
    __syncthreads();
    fetch_a(0, 0, 0);
    fetch_b(0, 0, 0);
    T sum[SLICE_M][SLICE_N] = {};
    int now = 0, next = SLICE_STAGES - 1;
    for (int k0 = 0; k0 < k; k0 += step) {
        load(next);
#pragma unroll
        for (int i = 0; i < depth; i++) {
            if (i == depth - 1) {  // what comes next lies in the next tiles
                wait_copies<SLICE_STAGES - 2>();
                __syncthreads();
                next = now;
                now = now + 1 < SLICE_STAGES ? now + 1 : 0;
            }
            if (i % VEC == VEC - 1)
                fetch_a((i / VEC + 1) % 2, now, (i + 1) % depth);
            fetch_b((i + 1) % 2, now, (i + 1) % depth);
#pragma unroll
            for (int r = 0; r < SLICE_M; r++)
#pragma unroll
                for (int s = 0; s < SLICE_N; s++)
                    sum[r][s] += column[i / VEC % 2][r].at[i % VEC] * line[i % 2][s / VEC].at[s % VEC];
        }
    }

    // The parts' sums meet in shared memory: in each round the upper half of the parts leave theirs to the lower half.
#pragma unroll
    for (int half = PARTS / 2; half > 0; half /= 2) {
        wait_copies<0>();
        __syncthreads();
        T *slot = tiles + (part % half * SLICE_WARPS(PARTS) + mine) * 32 * SLICE_M * SLICE_N + lane * VEC;
#pragma unroll
        for (int r = 0; r < SLICE_M; r++)
#pragma unroll
            for (int s = 0; s < SLICE_N; s += VEC) {
                Vector v;
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    v.at[e] = sum[r][s + e];
                if (part >= half && part < 2 * half)
                    *(uint4 *)(slot + (r * SLICE_N + s) * 32) = v.all;
            }
        __syncthreads();
        if (part < half)
#pragma unroll
            for (int r = 0; r < SLICE_M; r++)
#pragma unroll
                for (int s = 0; s < SLICE_N; s += VEC) {
                    Vector v = {*(const uint4 *)(slot + (r * SLICE_N + s) * 32)};
#pragma unroll
                    for (int e = 0; e < VEC; e++)
                        sum[r][s + e] += v.at[e];
                }
    }
    if (part > 0)
        return;
#pragma unroll
    for (int r = 0; r < SLICE_M; r++)
#pragma unroll
        for (int s = 0; s < SLICE_N; s += VEC) {
            Vector v;
#pragma unroll
            for (int e = 0; e < VEC; e++)
                v.at[e] = sum[r][s + e];
            size_t row = row0 + from_m + r * 8, col = col0 + from_n + s * 4;
            if (VECTORS) {
                if (row < m && col < n)
                    *(uint4 *)(c + row * n + col) = v.all;
            } else
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    if (row < m && col + e < n)
                        c[row * n + col + e] = v.at[e];
        }
}

// Shares k among groups of the block's warps, whose sums are added at the end: more blocks of smaller tiles.
// It pays where warp-tile's tiles are fewer than the multiprocessors, as at 1024; at 2048 warp-tile is ahead. The
// warps' own 64 x 64 elements remain, and with them the six loads for 128 products, and the arithmetic of float.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_sliced(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];

    if (k % VEC == 0 && n % VEC == 0)
        sliced_tile<true, SLICES>(a, b, c, m, k, n, (T *)tiles);
    else
        sliced_tile<false, SLICES>(a, b, c, m, k, n, (T *)tiles);
}

// Multiplies all 24 bits of float on the tensor cores, as three products of TF32: a number is the sum of two.
// From 2048 on it is ahead of the multiply-add units, with no larger error. Infinities become NaN, for their rest
// is. What remains: three times tensor's instructions on the same operands, which were its limit.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_tensor_split(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];

    if (k % VEC == 0 && n % VEC == 0)
        tensor_tile<true, true>(a, b, c, m, k, n, (T *)tiles);
    else
        tensor_tile<false, true>(a, b, c, m, k, n, (T *)tiles);
}

// From here rungs are for compute capability 9.0 alone: wgmma, by which four warps, a group, multiply 64 x 8 by 8 x HIGH
// elements. The second operand the tensor cores read from shared memory themselves; it must run along k, as rows of a
// do. So c is computed transposed: the first operand are 64 columns of b, which the lanes bring in registers, the second
// HIGH rows of a. Sums stay in registers, 64 x HIGH of them in a group.
#ifndef HIGH
#define HIGH 256  // rows of c in a block's tile, 128 or 256
#endif
#ifndef GSTAGES
#define GSTAGES 4  // steps whose tiles are in shared memory, in use or on the way
#endif
#define GROUPS (BLOCK / 128 > 0 ? BLOCK / 128 : 1)
#define GWIDE (GROUPS * 64)   // columns of c in a block's tile
#define GROW_B (GWIDE + 8)    // padded: four rows of b are in different banks
#define GSTAGE (HIGH * 32 + 32 * GROW_B)  // elements of the tiles of one step: 32 columns of a, 128 bytes
// In bytes; tiles of a begin at multiples of 1024, for which there is room.
#define GSHARED (GSTAGES * ((GSTAGE * 4 + 1023) / 1024 * 1024) + 1024)

// The places of a group's sums in the text of an instruction
#define PLACES32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES64 PLACES32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES128 PLACES64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
    "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, " \
    "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
    "%123, %124, %125, %126, %127"

#define SUMS4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS16(i) SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
#define SUMS64(i) SUMS16(i), SUMS16(i + 16), SUMS16(i + 32), SUMS16(i + 48)

// sum += A B for a group, begun and not waited for; b is B's descriptor.
__device__ __forceinline__ void begin_product(float (&sum)[128], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" PLACES128 "}, "
                 "{%128, %129, %130, %131}, %132, 1, 1, 1;"
                 : SUMS64(0), SUMS64(64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

__device__ __forceinline__ void begin_product(float (&sum)[64], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" PLACES64 "}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1;"
                 : SUMS64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

__device__ __forceinline__ void begin_product(float (&sum)[32], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" PLACES32 "}, "
                 "{%32, %33, %34, %35}, %36, 1, 1, 1;"
                 : SUMS16(0), SUMS16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

// sum = A B for a group, begun and not waited for
__device__ __forceinline__ void begin_sum(float (&sum)[64], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" PLACES64 "}, "
                 "{%64, %65, %66, %67}, %68, 0, 1, 1;"
                 : SUMS64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

// Keeps sums where the products have them: nothing else may define them from the first product on.
__device__ __forceinline__ void hold(float (&sum)[128])
{
    asm volatile("" : SUMS64(0), SUMS64(64)::"memory");
}

__device__ __forceinline__ void hold(float (&sum)[64])
{
    asm volatile("" : SUMS64(0)::"memory");
}

__device__ __forceinline__ void hold(float (&sum)[32])
{
    asm volatile("" : SUMS16(0), SUMS16(16)::"memory");
}

// Waits until at most LEFT of the group's begun batches of products are under way.
template <int LEFT>
__device__ __forceinline__ void wait_products()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#endif
}

template <bool VECTORS>  // whether all rows start at multiples of 16 bytes
__device__ __forceinline__ void group_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                           int k, int n, char *shared)
{
    // The blocks of a moment work on STRIP rows of tiles and few columns, whose parts of a and b fit the L2 cache.
    unsigned tiles_m = ((unsigned)m + HIGH - 1) / HIGH, tiles_n = ((unsigned)n + GWIDE - 1) / GWIDE;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * HIGH, col0 = (size_t)(number / high) * GWIDE;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32;
    unsigned from_n = idx / 32 * 16 + lane / 4;  // columns of c that the lane has: this one and from_n + 8
    unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const unsigned size = (GSTAGE * 4 + 1023) / 1024 * 1024;

    // A thread copies 16 bytes of every apart-th row. Rows and columns beyond the matrix are those at its edge again:
    // they make sums that nobody writes. Of a, the eight pieces of a row change places, differently in each of eight
    // rows, as the tensor cores expect it: their reads down a column of pieces are then in different banks.
    const int apart_a = BLOCK / 8, apart_b = BLOCK / (GWIDE / 4);
    const int row_a = idx / 8, at_a = idx % 8 * 4, row_b = idx / (GWIDE / 4), at_b = idx % (GWIDE / 4) * 4;
    const T *from_a = a + at_a, *from_b = b + (size_t)row_b * n;
    from_b += VECTORS ? min(col0 + at_b, (size_t)n - 4) : col0 + at_b;
    int wide = n - (int)col0 - at_b, deep = k;  // what is left of a row of b, and of k
    auto load = [&](int stage) {
        T *to_a = (T *)(shared + stage * size), *to_b = to_a + HIGH * 32;
        const T *line = from_b;
#pragma unroll
        for (int r = 0; r < HIGH; r += apart_a)
            copy_some<VECTORS>(to_a + (row_a + r) * 32 + (at_a ^ row_a % 8 * 4),
                               from_a + min(row0 + row_a + r, (size_t)m - 1) * k, deep - at_a);
#pragma unroll
        for (int r = 0; r < 32; r += apart_b, line += (size_t)apart_b * n)
            copy_some<VECTORS>(to_b + (row_b + r) * GROW_B + at_b, line, row_b + r < deep ? VECTORS ? 1 : wide : 0);
        from_a += 32;
        from_b += (size_t)32 * n;
        deep -= 32;
        commit_copies();
    };

#pragma unroll
    for (int stage = 0; stage < GSTAGES - 2; stage++)
        load(stage);
    float sum[HIGH / 2] = {};
    hold(sum);
    unsigned columns[2][4][4];
    int now = 0, next = GSTAGES - 2;
    for (int k0 = 0; k0 < k; k0 += 64)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            // Copies of this step have arrived, for the tensor cores too, and no group uses those of two steps ago.
            wait_copies<GSTAGES - 3>();
#if __CUDA_ARCH__ >= 900
            asm volatile("fence.proxy.async;" ::: "memory");
#endif
            __syncthreads();
            const T *tile_b = (const T *)(shared + now * size) + HIGH * 32 + lane % 4 * GROW_B + from_n;
#pragma unroll
            for (int i = 0; i < 4; i++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    columns[half][i][e] = *(const unsigned *)(tile_b + (i * 8 + e / 2 * 4) * GROW_B + e % 2 * 8);
            // Rows of 128 bytes whose pieces change places; eight of them are 1024 bytes on from the eight before.
            unsigned long long rows = (base + now * size) >> 4 | 1ull << 16 | 64ull << 32 | 1ull << 62;
#if __CUDA_ARCH__ >= 900
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
            for (int i = 0; i < 4; i++)
                begin_product(sum, columns[half][i], rows + i * 2);
#if __CUDA_ARCH__ >= 900
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
            wait_products<1>();
            load(next);
            now = now + 1 < GSTAGES ? now + 1 : 0;
            next = next + 1 < GSTAGES ? next + 1 : 0;
        }
    wait_products<0>();
    hold(sum);
#pragma unroll
    for (int i = 0; i < HIGH / 2; i++) {
        size_t row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2, col = col0 + from_n + i / 2 % 2 * 8;
        if (row < m && col < n)
            c[row * n + col] = sum[i];
    }
}

// Lets the tensor cores read shared memory themselves, by wgmma (sm_90a).
// An instruction is 64 x 8 by 8 x 256 products, begun and waited for later: the next tiles are fetched meanwhile, and
// only b passes through registers. That pays up to 2048. What remains: in every step all warps stop to copy, and to wait
// for each other.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_wgmma(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    char *shared = (char *)tiles + (1024 - __cvta_generic_to_shared(tiles) % 1024) % 1024;

    if (k % 4 == 0 && n % 4 == 0)
        group_tile<true>(a, b, c, m, k, n, shared);
    else
        group_tile<false>(a, b, c, m, k, n, shared);
}

// For elements of 2 bytes both operands may run either way, so both stay in shared memory, and c is computed as it lies:
// a group has 64 rows of it and all columns of the tile. A step is 64 columns of a, 128 bytes, and 64 rows of b.
#ifdef BFLOAT16
#define FORMAT "bf16"
#else
#define FORMAT "f16"
#endif
#ifndef BROAD
#define BROAD 256  // columns of c in a block's tile, 128 or 256
#endif
#define HTILE_M (GROUPS * 64)
#define HSTAGE ((HTILE_M + BROAD) * 64)               // elements of the tiles of one step
#define HSHARED (GSTAGES * HSTAGE * 2 + 1024)         // bytes

// sum += A B for a group, begun and not waited for, of elements of 2 bytes, by both descriptors. A and B lie by rows
// or, TURNED, by columns.
template <bool TURNED>
__device__ __forceinline__ void begin_product(float (&sum)[128], unsigned long long a, unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." FORMAT "." FORMAT " {" PLACES128 "}, "
                 "%128, %129, 1, 1, 1, %130, %131;"
                 : SUMS64(0), SUMS64(64)
                 : "l"(a), "l"(b), "n"(TURNED), "n"(!TURNED));
#endif
}

template <bool TURNED>
__device__ __forceinline__ void begin_product(float (&sum)[64], unsigned long long a, unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." FORMAT "." FORMAT " {" PLACES64 "}, "
                 "%64, %65, 1, 1, 1, %66, %67;"
                 : SUMS64(0)
                 : "l"(a), "l"(b), "n"(TURNED), "n"(!TURNED));
#endif
}

template <bool TURNED>
__device__ __forceinline__ void begin_product(float (&sum)[32], unsigned long long a, unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." FORMAT "." FORMAT " {" PLACES32 "}, "
                 "%32, %33, 1, 1, 1, %34, %35;"
                 : SUMS16(0), SUMS16(16)
                 : "l"(a), "l"(b), "n"(TURNED), "n"(!TURNED));
#endif
}

// Rounds two sums to elements of 2 bytes, the first in the lower half.
__device__ __forceinline__ unsigned rounded(float first, float second)
{
    unsigned both = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn." FORMAT "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#endif
    return both;
}

template <bool VECTORS>  // whether all rows start at multiples of 16 bytes
__device__ __forceinline__ void half_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                          int k, int n, char *shared)
{
    // The blocks of a moment work on STRIP rows of tiles and few columns, whose parts of a and b fit the L2 cache.
    unsigned tiles_m = ((unsigned)m + HTILE_M - 1) / HTILE_M, tiles_n = ((unsigned)n + BROAD - 1) / BROAD;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * HTILE_M, col0 = (size_t)(number / high) * BROAD;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32;
    unsigned base = (unsigned)__cvta_generic_to_shared(shared);

    // A thread copies 16 bytes of every apart-th row. Rows and columns beyond the matrix are those at its edge again.
    // The eight pieces of 128 bytes change places, differently in each of eight rows. A tile of b is cut into parts of
    // 64 columns, 128 bytes, one behind the other.
    const int apart_a = BLOCK / 8, apart_b = BLOCK / (BROAD / 8);
    const int row_a = idx / 8, at_a = idx % 8 * 8, row_b = idx / (BROAD / 8), at_b = idx % (BROAD / 8) * 8;
    const T *from_a = a + at_a, *from_b = b + (size_t)row_b * n;
    from_b += VECTORS ? min(col0 + at_b, (size_t)n - 8) : col0 + at_b;
    int wide = n - (int)col0 - at_b, deep = k;  // what is left of a row of b, and of k
    auto load = [&](int stage) {
        T *to_a = (T *)shared + stage * HSTAGE, *to_b = to_a + HTILE_M * 64 + at_b / 64 * 64 * 64;
        const T *line = from_b;
#pragma unroll
        for (int r = 0; r < HTILE_M; r += apart_a)
            copy_some<VECTORS>(to_a + (row_a + r) * 64 + (at_a ^ row_a % 8 * 8),
                               from_a + min(row0 + row_a + r, (size_t)m - 1) * k, deep - at_a);
#pragma unroll
        for (int r = 0; r < 64; r += apart_b, line += (size_t)apart_b * n)
            if (64 % apart_b == 0 || row_b + r < 64)
                copy_some<VECTORS>(to_b + (row_b + r) * 64 + (at_b % 64 ^ (row_b + r) % 8 * 8), line,
                                   row_b + r < deep ? VECTORS ? 1 : wide : 0);
        from_a += 64;
        from_b += (size_t)64 * n;
        deep -= 64;
        commit_copies();
    };

#pragma unroll
    for (int stage = 0; stage < GSTAGES - 2; stage++)
        load(stage);
    float sum[BROAD / 2] = {};
    hold(sum);
    int now = 0, next = GSTAGES - 2;
    for (int k0 = 0; k0 < k; k0 += 64) {
        // Copies of this step have arrived, for the tensor cores too, and no group uses those of two steps ago.
        wait_copies<GSTAGES - 3>();
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async;" ::: "memory");
#endif
        __syncthreads();
        // Eight rows of 128 bytes are 1024 bytes on from the eight before, a part of 64 columns 8192 from the next.
        unsigned long long pattern = 64ull << 32 | 1ull << 62;
        unsigned long long rows = (base + now * HSTAGE * 2 + idx / 128 * 8192) >> 4 | 1ull << 16 | pattern;
        unsigned long long columns = (base + now * HSTAGE * 2 + HTILE_M * 128) >> 4 | 512ull << 16 | pattern;
#if __CUDA_ARCH__ >= 900
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
        for (int i = 0; i < 4; i++)
            begin_product<false>(sum, rows + i * 2, columns + i * 128);
#if __CUDA_ARCH__ >= 900
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
        wait_products<1>();
        load(next);
        now = now + 1 < GSTAGES ? now + 1 : 0;
        next = next + 1 < GSTAGES ? next + 1 : 0;
    }
    wait_products<0>();
    hold(sum);
#pragma unroll
    for (int i = 0; i < BROAD / 2; i += 2) {
        size_t row = row0 + idx / 32 * 16 + lane / 4 + i / 2 % 2 * 8, col = col0 + i / 4 * 8 + lane % 4 * 2;
        unsigned both = rounded(sum[i], sum[i + 1]);
        if (VECTORS) {
            if (row < m && col < n)
                *(unsigned *)(c + row * n + col) = both;
        } else {
            if (row < m && col < n)
                c[row * n + col] = both & 0xFFFF;
            if (row < m && col + 1 < n)
                c[row * n + col + 1] = both >> 16;
        }
    }
}

// Multiplies float16 or bfloat16, with sums in float: 64 x 16 by 16 x 256 products an instruction (sm_90a).
// Half the bytes and twice the rate of TF32, and no operand passes through registers. What remains is as in wgmma.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_half(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    char *shared = (char *)tiles + (1024 - __cvta_generic_to_shared(tiles) % 1024) % 1024;

    if (k % 8 == 0 && n % 8 == 0)
        half_tile<true>(a, b, c, m, k, n, shared);
    else
        half_tile<false>(a, b, c, m, k, n, shared);
}

// tensor-split's three products by wgmma. What rests of b's elements the lanes compute in registers; what rests of a's
// goes into a second tile in shared memory, where each thread puts it for the vectors that it has copied itself.
#ifndef SSTAGES
#define SSTAGES 4  // steps whose tiles are in shared memory, in use or on the way
#endif
#define SHIGH 128  // rows of c in a block's tile: a lane keeps its sums twice
#define SSTAGE ((SHIGH * 32 + 32 * GROW_B + 255) / 256 * 256)   // elements; tiles begin at multiples of 1024 bytes
#define SSHARED ((SSTAGES * SSTAGE + 2 * SHIGH * 32) * 4 + 1024)  // bytes, with two tiles of rests

__device__ __forceinline__ float rest_of(float x)
{
    return x - __uint_as_float(__float_as_uint(x) & 0xFFFFE000);
}

template <bool VECTORS>  // whether all rows start at multiples of 16 bytes
__device__ __forceinline__ void split_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                           int k, int n, T *tiles)
{
    // The blocks of a moment work on STRIP rows of tiles and few columns, whose parts of a and b fit the L2 cache.
    unsigned tiles_m = ((unsigned)m + SHIGH - 1) / SHIGH, tiles_n = ((unsigned)n + GWIDE - 1) / GWIDE;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * SHIGH, col0 = (size_t)(number / high) * GWIDE;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32;
    unsigned from_n = idx / 32 * 16 + lane / 4;  // columns of c that the lane has: this one and from_n + 8

    // Copies as in wgmma
    const int apart_a = BLOCK / 8, apart_b = BLOCK / (GWIDE / 4);
    const int row_a = idx / 8, at_a = idx % 8 * 4, row_b = idx / (GWIDE / 4), at_b = idx % (GWIDE / 4) * 4;
    const int place_a = row_a * 32 + (at_a ^ row_a % 8 * 4);
    const T *from_a = a + at_a, *from_b = b + (size_t)row_b * n;
    from_b += VECTORS ? min(col0 + at_b, (size_t)n - 4) : col0 + at_b;
    int wide = n - (int)col0 - at_b, deep = k;  // what is left of a row of b, and of k
    auto load = [&](int stage) {
        T *to_a = tiles + stage * SSTAGE + place_a, *to_b = tiles + stage * SSTAGE + SHIGH * 32 + row_b * GROW_B + at_b;
        const T *line = from_b;
#pragma unroll
        for (int r = 0; r < SHIGH; r += apart_a)
            copy_some<VECTORS>(to_a + r * 32, from_a + min(row0 + row_a + r, (size_t)m - 1) * k, deep - at_a);
#pragma unroll
        for (int r = 0; r < 32; r += apart_b, line += (size_t)apart_b * n)
            copy_some<VECTORS>(to_b + r * GROW_B, line, row_b + r < deep ? VECTORS ? 1 : wide : 0);
        from_a += 32;
        from_b += (size_t)32 * n;
        deep -= 32;
        commit_copies();
    };

#pragma unroll
    for (int stage = 0; stage < SSTAGES - 1; stage++)
        load(stage);
    float total[SHIGH / 2] = {}, sum[SHIGH / 2];
    int now = 0, next = SSTAGES - 1, side = 0;
    for (int k0 = 0; k0 < k; k0 += 32) {
        const T *tile_a = tiles + now * SSTAGE;
        T *rests = tiles + SSTAGES * SSTAGE + side * SHIGH * 32;
        wait_copies<SSTAGES - 2>();
#pragma unroll
        for (int r = 0; r < SHIGH; r += apart_a) {
            float4 v = *(const float4 *)(tile_a + place_a + r * 32);
            *(float4 *)(rests + place_a + r * 32) = {rest_of(v.x), rest_of(v.y), rest_of(v.z), rest_of(v.w)};
        }
        // Copies and rests are there, for the tensor cores too, and no group uses the tiles of the step before.
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async;" ::: "memory");
#endif
        __syncthreads();
        const T *tile_b = tile_a + SHIGH * 32 + lane % 4 * GROW_B + from_n;
        unsigned columns[4][4], rest[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float x = tile_b[(i * 8 + e / 2 * 4) * GROW_B + e % 2 * 8];
                columns[i][e] = __float_as_uint(x);
                rest[i][e] = __float_as_uint(rest_of(x));
            }
#pragma unroll
        for (int i = 0; i < SHIGH / 2; i++)
            sum[i] = 0;
        hold(sum);
        // Rows of 128 bytes whose pieces change places; eight of them are 1024 bytes on from the eight before.
        unsigned long long pattern = 1ull << 16 | 64ull << 32 | 1ull << 62;
        unsigned long long rows = (unsigned)__cvta_generic_to_shared(tile_a) >> 4 | pattern;
        unsigned long long rows_rest = (unsigned)__cvta_generic_to_shared(rests) >> 4 | pattern;
#if __CUDA_ARCH__ >= 900
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
        for (int i = 0; i < 4; i++) {
            begin_product(sum, rest[i], rows + i * 2);
            begin_product(sum, columns[i], rows_rest + i * 2);
            begin_product(sum, columns[i], rows + i * 2);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
        load(next);
        next = now;
        now = now + 1 < SSTAGES ? now + 1 : 0;
        side ^= 1;
        wait_products<0>();
        hold(sum);
#pragma unroll
        for (int i = 0; i < SHIGH / 2; i++)
            total[i] += sum[i];
    }
#pragma unroll
    for (int i = 0; i < SHIGH / 2; i++) {
        size_t row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2, col = col0 + from_n + i / 2 % 2 * 8;
        if (row < m && col < n)
            c[row * n + col] = total[i];
    }
}

// Multiplies all 24 bits of float by wgmma, as three products of TF32 (sm_90a).
// A step's sums, of 32 products, are cut off by the tensor cores and then added by the lanes, which round: so the error
// does not grow with k as theirs would. What remains: the warps that multiply also copy and make the rests of a.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_wgmma_split(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    char *shared = (char *)tiles + (1024 - __cvta_generic_to_shared(tiles) % 1024) % 1024;

    if (k % 4 == 0 && n % 4 == 0)
        split_tile<true>(a, b, c, m, k, n, (T *)shared);
    else
        split_tile<false>(a, b, c, m, k, n, (T *)shared);
}

// The last rungs' tiles come by the tensor memory accelerator: told a box of a matrix, it fetches the box by itself.
// One thread tells it all, and the groups of warps that multiply only wait. c is computed transposed for every type, as
// in wgmma; a step is 128 bytes of each row of a.
#ifndef TALL
#define TALL 256  // rows of c in a block's tile: 64, 128 or 256
#endif
#define MULTIPLIERS (GROUPS > 1 ? GROUPS - 1 : 1)  // groups that multiply; one more fetches
#define BESIDE (MULTIPLIERS * 64)                  // columns of c in a block's tile
#define RSTEP (128 / (int)sizeof(T))               // columns of a, and rows of b, in the tiles of one step
#define RSTAGE ((TALL + BESIDE) * 128)             // bytes of the tiles of one step
#ifndef RSTAGES
#define RSTAGES (TALL == 256 ? 4 : 6)  // steps whose tiles are in shared memory, in use or on the way
#endif
#define PART (64 * 64 * 2)  // bytes of 64 x 64 elements of 2 bytes, by which they go into c; a group has two such
#define RPARTS (sizeof(T) == 2 ? MULTIPLIERS * 2 * PART : 0)
#define RSHARED (RSTAGES * (RSTAGE + 16) + RPARTS + 1024)  // with a pair of barriers for every step

// A barrier in shared memory counts arrivals, and bytes that are on their way; each time that none is missing ends a
// phase, and phases are told apart by their parity.
__device__ __forceinline__ void make_barrier(unsigned barrier, unsigned arrivals)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
#endif
}

__device__ __forceinline__ void wait_phase(unsigned barrier, unsigned parity)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred over;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@!over bra again;}" ::"r"(barrier), "r"(parity) : "memory");
#endif
}

__device__ __forceinline__ void arrive(unsigned barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

// Arrives, and says how many bytes will.
__device__ __forceinline__ void expect_bytes(unsigned barrier, unsigned bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

// Fetches the box of a matrix that begins at (row, col), and the barrier gets to know of the bytes. What lies outside
// becomes zeros. Two BLOCKS of a cluster both get it, in the same place, and the barriers of both get to know.
template <int BLOCKS = 1>
__device__ __forceinline__ void fetch_box(unsigned to, const CUtensorMap &map, unsigned barrier, int row, int col)
{
#if __CUDA_ARCH__ >= 900
    if (BLOCKS == 1)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(col), "r"(row), "r"(barrier)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(col), "r"(row),
                     "r"(barrier), "h"((unsigned short)3)
                     : "memory");
#endif
}

// Arrives at the barrier that is in this place in a block of the cluster.
__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned rank)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier), "r"(rank) : "memory");
#endif
}

// Waits for the other threads of the block, or of two BLOCKS of a cluster.
template <int BLOCKS> __device__ __forceinline__ void meet()
{
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;\n"
                     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
        return;
    }
#endif
    __syncthreads();
}

// The tiles that a block works on, one after the other, and the ring of PLACES places of SIZE bytes that their steps go
// through: ROWS rows of a, then parts of b of RSTEP columns, each row 128 bytes whose pieces change places. One barrier
// of a place says that it is full, one that it is empty. Of two BLOCKS of a cluster, `rank` 0 and 1, the tiles are side by
// side, and each block fetches half of the rows of a for both; in a last column that has no other beside it they are
// below each other and nothing is shared. A tile's number then stands for both.
template <int ROWS, int SIZE, int PLACES, int BLOCKS = 1> struct Ring {
    unsigned tiles_m, tiles_n, rank, base, full, empty, place, phase;
    int steps, row0, col0;
    bool beside;  // whether the tiles of the blocks are side by side
    char *shared;

    __device__ __forceinline__ Ring(uint4 *tiles, unsigned parts, unsigned idx, int m, int k, int n)
    {
        unsigned start = (unsigned)__cvta_generic_to_shared(tiles);
        base = (start + 1023) / 1024 * 1024;
        shared = (char *)tiles + (base - start);
        full = base + PLACES * SIZE + parts;
        empty = full + PLACES * 8;
        place = phase = 0;
        rank = blockIdx.x % BLOCKS;
        tiles_m = ((unsigned)m + ROWS - 1) / ROWS;
        tiles_n = ((unsigned)n + BESIDE - 1) / BESIDE;
        steps = ((unsigned)k + RSTEP - 1) / RSTEP;
        if (sizeof(T) == 4)
            steps += steps % 2;  // operands in registers take turns
        if (idx == 0) {
            for (int i = 0; i < PLACES; i++) {
                make_barrier(full + i * 8, 1);
                make_barrier(empty + i * 8, MULTIPLIERS * BLOCKS);
            }
#if __CUDA_ARCH__ >= 900
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
        }
    }

    // The blocks of a moment work on STRIP rows of tiles and few columns, whose parts of a and b fit the L2 cache.
    __device__ __forceinline__ bool find(unsigned turn)
    {
        unsigned tile = blockIdx.x / BLOCKS + turn * (gridDim.x / BLOCKS), wide = tiles_n / BLOCKS;
        beside = BLOCKS > 1 && tile < tiles_m * wide;
        if (BLOCKS > 1 && !beside) {
            unsigned below = (tile - tiles_m * wide) * BLOCKS;
            row0 = (below + rank) * ROWS;
            col0 = wide * BLOCKS * BESIDE;
            return tiles_n % BLOCKS > 0 && below < tiles_m;
        }
        unsigned strip = tile / (STRIP * wide) * STRIP, number = tile - strip * wide;
        unsigned high = min(tiles_m - strip, STRIP);
        row0 = (strip + number % high) * ROWS;
        col0 = (number / high * BLOCKS + rank) * BESIDE;
        return tile < tiles_m * wide;
    }

    __device__ __forceinline__ void advance()
    {
        if (++place == PLACES) {
            place = 0;
            phase ^= 1;
        }
    }

    // The address of a place as descriptors have it: without the rank, which comes above 18 bits.
    __device__ __forceinline__ unsigned address(unsigned at) const
    {
        return BLOCKS > 1 ? (base + at * SIZE) & 0x3FFFF : base + at * SIZE;
    }

    // A group's threads, `idx` of them, say to all that fetch into a place that the group does not need it any more.
    __device__ __forceinline__ void release(unsigned at, unsigned idx) const
    {
        if (BLOCKS == 1 && idx == 0)
            arrive(empty + at * 8);
        if (BLOCKS > 1 && idx < BLOCKS)
            arrive_at(empty + at * 8, idx);
    }

    // Fetches all steps of all tiles: what one thread does.
    __device__ __forceinline__ void fetch(const CUtensorMap &map_a, const CUtensorMap &map_b)
    {
        for (unsigned turn = 0; find(turn); turn++)
            for (int step = 0; step < steps; step++, advance()) {
                unsigned barrier = full + place * 8, to = base + place * SIZE;
                wait_phase(empty + place * 8, phase ^ 1);
                expect_bytes(barrier, (ROWS + BESIDE) * 128);
                for (int half = 0; half < BLOCKS; half++) {  // boxes of a
                    int above = half * (ROWS / BLOCKS);
                    if (!beside)
                        fetch_box(to + above * 128, map_a, barrier, row0 + above, step * RSTEP);
                    else if (half == rank)
                        fetch_box<BLOCKS>(to + above * 128, map_a, barrier, row0 + above, step * RSTEP);
                }
                for (int part = 0; part < BESIDE / RSTEP; part++)
                    fetch_box(to + (ROWS + part * RSTEP) * 128, map_b, barrier, step * RSTEP, col0 + part * RSTEP);
            }
    }

    // The same where rows do not start at multiples of 16 bytes, which maps cannot describe: THREADS threads copy.
    template <int THREADS>
    __device__ __forceinline__ void copy(const T *__restrict__ a, const T *__restrict__ b, int m, int k, int n, int idx)
    {
        for (unsigned turn = 0; find(turn); turn++)
            for (int step = 0; step < steps; step++, advance()) {
                char *to = shared + place * SIZE;
                wait_phase(empty + place * 8, phase ^ 1);
                for (int i = idx; i < (ROWS + BESIDE) * RSTEP; i += THREADS) {
                    int line = i / RSTEP, at = i % RSTEP, below = line - ROWS;
                    int row = below < 0 ? row0 + line : step * RSTEP + below % RSTEP;
                    int col = below < 0 ? step * RSTEP + at : col0 + below / RSTEP * RSTEP + at;
                    T x = below < 0 ? row < m && col < k ? a[(size_t)row * k + col] : (T)0
                          : row < k && col < n ? b[(size_t)row * n + col] : (T)0;
                    ((T *)(to + line * 128))[at ^ line % 8 * VEC] = x;
                }
#if __CUDA_ARCH__ >= 900
                asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                asm volatile("bar.sync %0, %1;" ::"n"(MULTIPLIERS + 1), "n"(THREADS) : "memory");
#endif
                if (idx == 0)
                    arrive(full + place * 8);
            }
    }
};

// Stores four 8 x 8 matrices of elements of 2 bytes, turned: lane 8 i + j names the place of the column j of matrix i.
__device__ __forceinline__ void store_turned(unsigned to, const unsigned (&matrices)[4])
{
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(matrices[0]),
                 "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
#endif
}

// Puts a group's sums into c: as elements of 2 bytes by way of shared memory, from where boxes of 64 x 64 are stored
// while the group works on; as floats at once, of which a lane has two neighbours.
template <int COUNT>
__device__ __forceinline__ void store_turned_sums(const float (&sum)[COUNT], const CUtensorMap &map_c, T *c, int m,
                                                  int n, int row0, int col0, int column, unsigned part, unsigned idx)
{
    unsigned lane = idx % 32;
    if (sizeof(T) == 4 || n % VEC) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            size_t row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2, col = col0 + column;
            col += i / 2 % 2 * (sizeof(T) == 4 ? 1 : 8);
            if (sizeof(T) == 4 && n % 2 == 0) {
                if (i / 2 % 2 == 0 && row < m && col < n)
                    *(Pair *)(c + row * n + col) = {(T)sum[i], (T)sum[i + 2 < COUNT ? i + 2 : i]};
            } else if (row < m && col < n)
                c[row * n + col] = sizeof(T) == 4 ? (T)sum[i] : (T)(rounded(sum[i], 0) & 0xFFFF);
        }
        return;
    }
    unsigned chunk = idx / 32 % 4 * 2 + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j < COUNT / 32; j++) {
        unsigned to = part + j % 2 * PART;
#if __CUDA_ARCH__ >= 900
        if (idx % 128 == 0)  // the store before the last has read its part
            asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + idx / 128) : "memory");
#endif
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            unsigned matrices[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                matrices[e] = rounded(sum[j * 32 + i + e * 2], sum[j * 32 + i + e * 2 + 1]);
            unsigned row = i * 2 + lane / 16 * 8 + lane % 8;
            store_turned(to + row * 128 + (chunk ^ row % 8) * 16, matrices);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + idx / 128) : "memory");
        if (idx % 128 == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                         " [%0, {%1, %2}], [%3];" ::"l"(&map_c),
                         "r"(col0 + (int)(idx / 128) * 64), "r"(row0 + j * 64), "r"(to)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
#endif
    }
}

// Gives a group of warps more registers than others of the block, which get along with few.
template <int COUNT, bool MORE>
__device__ __forceinline__ void set_registers()
{
#if __CUDA_ARCH__ >= 900
    if (MORE)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

// Multiplies what one thread fetches: the last group of warps gives its registers to those that multiply.
template <int BLOCKS>
__device__ __forceinline__ void multiply_fetched(const CUtensorMap &map_a, const CUtensorMap &map_b,
                                                 const CUtensorMap &map_c, const T *__restrict__ a,
                                                 const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32, group = idx / 128;
    Ring<TALL, RSTAGE, RSTAGES, BLOCKS> ring(tiles, RPARTS, idx, m, k, n);
    meet<BLOCKS>();

    if (group == MULTIPLIERS) {
        set_registers<40, false>();
        if (k % VEC || n % VEC)
            ring.copy<128>(a, b, m, k, n, idx % 128);
        else if (idx % 128 == 0)
            ring.fetch(map_a, map_b);
    } else {
        set_registers<232, true>();
        // Of float, a lane has two neighbouring columns of b; those of a warp are spread so that its loads meet every
        // bank. Of elements of 2 bytes it has those that the tensor cores give it.
        int place = lane / 8 % 2 * 4 + warp % 2 * 2 + lane / 16;
        int column = sizeof(T) == 4 ? warp / 2 * 32 + place * 4 + lane / 4 % 2 * 2 : warp * 16 + lane / 4;
        int near = (TALL + warp / 2 * 32 + lane % 4) * 128 + (place ^ lane % 4) * 16 + lane / 4 % 2 * 8;
        int far = (near ^ 64) + 512;  // four rows on: there the pieces change places otherwise
        unsigned columns[2][4][4];
        for (unsigned turn = 0; ring.find(turn); turn++) {
            float sum[TALL / 2] = {};
            hold(sum);
            int before = -1;
            for (int step = 0; step < ring.steps; step += 2)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    if (sizeof(T) == 2 && step + half == ring.steps)
                        break;
                    wait_phase(ring.full + ring.place * 8, ring.phase);
                    const char *tile = ring.shared + ring.place * RSTAGE;
                    if (sizeof(T) == 4)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            *(uint2 *)&columns[half][i][0] = *(const uint2 *)(tile + near + i * 1024);
                            *(uint2 *)&columns[half][i][2] = *(const uint2 *)(tile + far + i * 1024);
                        }
                    // Eight rows of 128 bytes, whose pieces change places, are 1024 bytes on from the eight before.
                    unsigned long long pattern = 1ull << 16 | 64ull << 32 | 1ull << 62;
                    unsigned long long rows = ring.address(ring.place) >> 4 | pattern;
                    unsigned long long turned = rows + (TALL * 128 + group * PART) / 16;
#if __CUDA_ARCH__ >= 900
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (sizeof(T) == 4)
                            begin_product(sum, columns[half][i], rows + i * 2);
                        else
                            begin_product<true>(sum, turned + i * 128, rows + i * 2);
#if __CUDA_ARCH__ >= 900
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
                    wait_products<1>();
                    if (before >= 0)
                        ring.release(before, idx % 128);
                    before = ring.place;
                    ring.advance();
                }
            wait_products<0>();
            hold(sum);
            ring.release(before, idx % 128);
            store_turned_sums(sum, map_c, c, m, n, ring.row0, ring.col0, column,
                              ring.base + RSTAGES * RSTAGE + group * 2 * PART, idx);
        }
#if __CUDA_ARCH__ >= 900
        if (sizeof(T) == 2 && idx % 128 == 0)
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    }
    if (BLOCKS > 1)
        meet<BLOCKS>();  // no block ends while the other still fetches into it
}

// Leaves the fetching to one thread, whose group gives its registers to those that multiply.
// Blocks stay, and take tile after tile: the next one's fetches begin while this one's sums are stored. What remains is
// the tensor cores' own rate, which for large matrices the card's power limits; and, where rows do not start at multiples
// of 128 bytes, the L2 cache: a row of a box then lies in two of its lines.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
matmul_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
           const __grid_constant__ CUtensorMap map_c, const T *__restrict__ a, const T *__restrict__ b,
           T *__restrict__ c, int m, int k, int n)
{
    multiply_fetched<1>(map_a, map_b, map_c, a, b, c, m, k, n);
}

// tma's fetches for the three products of wgmma-split: of the four warps that do not multiply one fetches, and three
// make what rests of a's elements, a second tile beside the first.
#define SPLIT_ROWS 128  // rows of c in a block's tile: a lane keeps its sums twice
#define RESTS ((SPLIT_ROWS + BESIDE) * 128)  // bytes of the tiles of one step
#define ESTAGE (RESTS + SPLIT_ROWS * 128)    // with the rests
#ifndef ESTAGES
#define ESTAGES 4  // steps whose tiles are in shared memory, in use or on the way
#endif
#define ESHARED (ESTAGES * (ESTAGE + 24) + 1024)  // with three barriers for every step

// Multiplies all 24 bits of float with nothing to do for the warps that multiply but their own part of b.
// Over twice the rate of the multiply-add units, with a smaller error. What remains is the tensor cores' rate: three
// instructions for one of tma's.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
matmul_tma_split(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                 const __grid_constant__ CUtensorMap map_c, const T *__restrict__ a, const T *__restrict__ b,
                 T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32, group = idx / 128;
    Ring<SPLIT_ROWS, ESTAGE, ESTAGES> ring(tiles, 0, idx, m, k, n);
    unsigned ready = ring.empty + ESTAGES * 8;
    if (idx == 0)
        for (int stage = 0; stage < ESTAGES; stage++)
            make_barrier(ready + stage * 8, 3);
    __syncthreads();

    if (group == MULTIPLIERS) {
        set_registers<40, false>();
        if (warp % 4 > 0) {
            for (unsigned turn = 0; ring.find(turn); turn++)
                for (int step = 0; step < ring.steps; step++, ring.advance()) {
                    float4 *tile = (float4 *)(ring.shared + ring.place * ESTAGE);
                    wait_phase(ring.full + ring.place * 8, ring.phase);
#pragma unroll 4
                    for (int i = idx % 128 - 32; i < SPLIT_ROWS * 8; i += 96) {
                        float4 v = tile[i];
                        tile[i + RESTS / 16] = {rest_of(v.x), rest_of(v.y), rest_of(v.z), rest_of(v.w)};
                    }
#if __CUDA_ARCH__ >= 900
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
                    __syncwarp();
                    if (lane == 0)
                        arrive(ready + ring.place * 8);
                }
        } else if (k % VEC || n % VEC)
            ring.copy<32>(a, b, m, k, n, lane);
        else if (lane == 0)
            ring.fetch(map_a, map_b);
    } else {
        set_registers<232, true>();
        int place = lane / 8 % 2 * 4 + warp % 2 * 2 + lane / 16;
        int column = warp / 2 * 32 + place * 4 + lane / 4 % 2 * 2;
        int near = (SPLIT_ROWS + warp / 2 * 32 + lane % 4) * 128 + (place ^ lane % 4) * 16 + lane / 4 % 2 * 8;
        int far = (near ^ 64) + 512;
        unsigned columns[4][4], rest[4][4];
        for (unsigned turn = 0; ring.find(turn); turn++) {
            float total[SPLIT_ROWS / 2] = {}, sum[SPLIT_ROWS / 2] = {};
            for (int step = 0; step < ring.steps; step++, ring.advance()) {
                wait_phase(ring.full + ring.place * 8, ring.phase);
                const char *tile = ring.shared + ring.place * ESTAGE;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    *(uint2 *)&columns[i][0] = *(const uint2 *)(tile + near + i * 1024);
                    *(uint2 *)&columns[i][2] = *(const uint2 *)(tile + far + i * 1024);
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        rest[i][e] = __float_as_uint(rest_of(__uint_as_float(columns[i][e])));
                }
                wait_phase(ready + ring.place * 8, ring.phase);
                unsigned long long pattern = 1ull << 16 | 64ull << 32 | 1ull << 62;
                unsigned long long rows = (ring.base + ring.place * ESTAGE) >> 4 | pattern;
                unsigned long long rows_rest = rows + RESTS / 16;
                hold(sum);
#if __CUDA_ARCH__ >= 900
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (i == 0)
                        begin_sum(sum, rest[i], rows);
                    else
                        begin_product(sum, rest[i], rows + i * 2);
                    begin_product(sum, columns[i], rows_rest + i * 2);
                    begin_product(sum, columns[i], rows + i * 2);
                }
#if __CUDA_ARCH__ >= 900
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
                wait_products<0>();
                hold(sum);
                if (idx % 128 == 0)
                    arrive(ring.empty + ring.place * 8);
#pragma unroll
                for (int i = 0; i < SPLIT_ROWS / 2; i++)
                    total[i] += sum[i];
            }
            store_turned_sums(total, map_c, c, m, n, ring.row0, ring.col0, column, 0, idx);
        }
    }
}

#if __CUDA_ARCH__ >= 900
#define IN_PAIRS __cluster_dims__(2, 1, 1)
#else
#define IN_PAIRS
#endif

// Two blocks of a cluster, their tiles side by side, share what they fetch of a: each fetches half of it for both.
// It pays where neither a's rows nor b's start at multiples of 128 bytes, so that a box takes the L2 cache nearly twice
// the requests, which are then the limit of tma. Elsewhere all of tma's limits remain.
extern "C" __global__ void IN_PAIRS __launch_bounds__(BLOCK, 1)
matmul_tma_pair(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, const T *__restrict__ a, const T *__restrict__ b,
                T *__restrict__ c, int m, int k, int n)
{
    multiply_fetched<2>(map_a, map_b, map_c, a, b, c, m, k, n);
}
