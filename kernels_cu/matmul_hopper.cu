// Matrix product by wgmma (compute capability 9.0 only): a group of four warps multiplies 64 x 8 by 8 x HIGH elements.
//
//     first operand: 64 columns of b, in registers
//     second operand: HIGH rows of a, which the tensor cores read from shared memory themselves
//
// Of float, the second operand must be contiguous in k, like rows of a. So c is computed transposed. Sums stay in
// registers, 64 x HIGH of them in a group. An instruction only begins a product: the group copies the next tiles
// meanwhile, and waits for the product later.

#include "group_products.cuh"
#include "matrix.cuh"

#ifndef HIGH
#define HIGH 256  // rows of c in a block's tile, 128 or 256
#endif
#ifndef GSTAGES
#define GSTAGES 4  // steps whose tiles are in shared memory, in use or being copied
#endif
#define GWIDE (GROUPS * 64)   // columns of c in a block's tile
#define GROW_B (GWIDE + 8)    // padded: four rows of b are in different banks
#define GSTAGE (HIGH * 32 + 32 * GROW_B)  // elements of the tiles of one step: 32 columns of a, 128 bytes
// Bytes of shared memory; tiles of a begin at multiples of 1024 bytes.
#define GSHARED (GSTAGES * ((GSTAGE * 4 + 1023) / 1024 * 1024) + 1024)

// Computes a block's tile of c. VECTORS: all rows start at multiples of 16 bytes.
template <bool VECTORS>
__device__ __forceinline__ void group_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                           int k, int n, char *shared)
{
    // Blocks that run together work on STRIP rows of tiles and few columns, so that their parts of a and b fit the L2.
    unsigned tiles_m = ((unsigned)m + HIGH - 1) / HIGH, tiles_n = ((unsigned)n + GWIDE - 1) / GWIDE;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * HIGH, col0 = (size_t)(number / high) * GWIDE;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32;
    unsigned from_n = idx / 32 * 16 + lane / 4;  // the lane's columns of c: this one and from_n + 8
    unsigned base = (unsigned)__cvta_generic_to_shared(shared);
    const unsigned size = (GSTAGE * 4 + 1023) / 1024 * 1024;

    // A thread copies 16 bytes of every apart-th row. Beyond the matrix it copies the rows and columns at the edge
    // again: their sums are not written. In the tile of a, the eight pieces of a row change places, differently in each
    // of eight rows, as the tensor cores expect: their reads down a column of pieces are then in different banks.
    const int apart_a = BLOCK / 8, apart_b = BLOCK / (GWIDE / 4);
    const int row_a = idx / 8, at_a = idx % 8 * 4, row_b = idx / (GWIDE / 4), at_b = idx % (GWIDE / 4) * 4;
    const T *from_a = a + at_a, *from_b = b + (size_t)row_b * n;
    from_b += VECTORS ? min(col0 + at_b, (size_t)n - 4) : col0 + at_b;
    int wide = n - (int)col0 - at_b, deep = k;  // elements left in a row of b, and along k
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
            // Now this step's copies are complete, also for the tensor cores, and no group uses those of two steps ago.
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
            // Rows of 128 bytes whose pieces change places; each eight rows take 1024 bytes.
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
// An instruction begins 64 x 8 by 8 x 256 products and the group waits for them later: it fetches the next tiles
// meanwhile, and only b passes through registers. That pays up to 2048. What remains: in every step all warps stop to
// copy, and to wait for each other.
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

// Operands of 2 bytes may be stored by rows or by columns, so both stay in shared memory, and c is not transposed: a
// group has 64 rows of it and all columns of the tile. A step takes 64 columns of a, 128 bytes, and 64 rows of b.
#ifndef BROAD
#define BROAD 256  // columns of c in a block's tile, 128 or 256
#endif
#define HTILE_M (GROUPS * 64)
#define HSTAGE ((HTILE_M + BROAD) * 64)               // elements of the tiles of one step
#define HSHARED (GSTAGES * HSTAGE * 2 + 1024)         // bytes

// Computes a block's tile of c. VECTORS: all rows start at multiples of 16 bytes.
template <bool VECTORS>
__device__ __forceinline__ void half_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                          int k, int n, char *shared)
{
    // Blocks that run together work on STRIP rows of tiles and few columns, so that their parts of a and b fit the L2.
    unsigned tiles_m = ((unsigned)m + HTILE_M - 1) / HTILE_M, tiles_n = ((unsigned)n + BROAD - 1) / BROAD;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * HTILE_M, col0 = (size_t)(number / high) * BROAD;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32;
    unsigned base = (unsigned)__cvta_generic_to_shared(shared);

    // A thread copies 16 bytes of every apart-th row. Beyond the matrix it copies the rows and columns at the edge
    // again. The eight pieces of 128 bytes change places, differently in each of eight rows. A tile of b has parts of
    // 64 columns, 128 bytes, one after the other.
    const int apart_a = BLOCK / 8, apart_b = BLOCK / (BROAD / 8);
    const int row_a = idx / 8, at_a = idx % 8 * 8, row_b = idx / (BROAD / 8), at_b = idx % (BROAD / 8) * 8;
    const T *from_a = a + at_a, *from_b = b + (size_t)row_b * n;
    from_b += VECTORS ? min(col0 + at_b, (size_t)n - 8) : col0 + at_b;
    int wide = n - (int)col0 - at_b, deep = k;  // elements left in a row of b, and along k
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
        // Now this step's copies are complete, also for the tensor cores, and no group uses those of two steps ago.
        wait_copies<GSTAGES - 3>();
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async;" ::: "memory");
#endif
        __syncthreads();
        // Each eight rows of 128 bytes take 1024 bytes, each part of 64 columns 8192.
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
// It moves half the bytes of TF32 at twice its rate, and no operand passes through registers. What remains is as in
// wgmma.
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

// The next rung, a detour, does tensor-split's three products by wgmma. The lanes compute the rests of b's elements in
// registers. The rests of a's elements go to a second tile in shared memory: each thread writes those of the vectors
// that it copied itself.
#ifndef SSTAGES
#define SSTAGES 4  // steps whose tiles are in shared memory, in use or being copied
#endif
#define SHIGH 128  // rows of c in a block's tile; a lane holds its sums twice
#define SSTAGE ((SHIGH * 32 + 32 * GROW_B + 255) / 256 * 256)   // elements; tiles begin at multiples of 1024 bytes
#define SSHARED ((SSTAGES * SSTAGE + 2 * SHIGH * 32) * 4 + 1024)  // bytes, with two tiles of rests

// Computes a block's tile of c. VECTORS: all rows start at multiples of 16 bytes.
template <bool VECTORS>
__device__ __forceinline__ void split_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                           int k, int n, T *tiles)
{
    // Blocks that run together work on STRIP rows of tiles and few columns, so that their parts of a and b fit the L2.
    unsigned tiles_m = ((unsigned)m + SHIGH - 1) / SHIGH, tiles_n = ((unsigned)n + GWIDE - 1) / GWIDE;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * SHIGH, col0 = (size_t)(number / high) * GWIDE;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32;
    unsigned from_n = idx / 32 * 16 + lane / 4;  // the lane's columns of c: this one and from_n + 8

    // Copies as in wgmma
    const int apart_a = BLOCK / 8, apart_b = BLOCK / (GWIDE / 4);
    const int row_a = idx / 8, at_a = idx % 8 * 4, row_b = idx / (GWIDE / 4), at_b = idx % (GWIDE / 4) * 4;
    const int place_a = row_a * 32 + (at_a ^ row_a % 8 * 4);
    const T *from_a = a + at_a, *from_b = b + (size_t)row_b * n;
    from_b += VECTORS ? min(col0 + at_b, (size_t)n - 4) : col0 + at_b;
    int wide = n - (int)col0 - at_b, deep = k;  // elements left in a row of b, and along k
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
        // Now copies and rests are complete, also for the tensor cores, and no group uses the tiles of the step before.
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
        // Rows of 128 bytes whose pieces change places; each eight rows take 1024 bytes.
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
// The tensor cores cut off the sums of a step, 32 products; then the lanes add them with rounding. So the error grows
// less with k. What remains: the warps that multiply also copy, and compute the rests of a.
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
