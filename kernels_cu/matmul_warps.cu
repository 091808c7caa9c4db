// Matrix product by warp tiles: a warp owns a part of c, 4 x 8 lanes with WTM x WTN sums each, 64 x 64 for float.
//
//     columns of a              rows of b               c
//     | one step's tile | x     | one step's tile |  =  | warp 0 | warp 1 | warp 2 | warp 3 |
//     (STAGES in shared         copied by cp.async      | warp 4 | warp 5 | warp 6 | warp 7 |
//      memory at a time)        meanwhile
//
// So few loads from shared memory serve many products, and copies do not pass through registers: the multiply-add units
// become the limit.

#include "matrix.cuh"

#ifndef WTM
#define WTM (64 / (int)sizeof(T))  // rows of a thread's sums
#endif
#ifndef WTN
#define WTN 8  // columns of a thread's sums
#endif
#ifndef WTK
#define WTK 16  // columns of a, and rows of b, in the tiles of one step
#endif
#ifndef STAGES
#define STAGES (sizeof(T) == 4 ? 3 : 2)  // steps whose tiles are in shared memory or being copied
#endif
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

// Finds the first row and column of a thread's sums in the block's tile.
__device__ __forceinline__ void find_sums(unsigned &from_m, unsigned &from_n)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32;
    // Neighbouring lanes share their columns, lanes two apart their rows, so that a half warp's 16-byte loads merge.
    unsigned lane_m = lane % 2 + lane / 16 * 2, lane_n = lane / 2 % 8;
    from_m = warp / WARPS_N * WARP_M + lane_m * VEC, from_n = warp % WARPS_N * WARP_N + lane_n * VEC;
}

// Adds a thread's products. VECTORS: rows of b and c start at multiples of 16 bytes. WHOLE: all elements of the block's
// tiles are inside, and those of b that a thread copies are below each other, so that no access is checked.
template <bool VECTORS, bool WHOLE>
__device__ __forceinline__ void sum_warp_tile(T (&sum)[WTM][WTN], const T *__restrict__ a, const T *__restrict__ b,
                                              int m, int k, int n, size_t row0, size_t col0,
                                              T (&tile_a)[STAGES][WTK][WROW_A], T (&tile_b)[STAGES][WTK][WTILE_N])
{
    const int width = VECTORS ? VEC : 1;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, from_m, from_n;
    find_sums(from_m, from_n);

    // A thread copies elements of one column of the tile of a, ROWS_APART rows from each other.
    const int ROWS_APART = BLOCK / WTK, EACH = WTILE_M / ROWS_APART;
    int row_a = idx / WTK, col_a = idx % WTK;
    const T *from_a = a + (row0 + row_a) * k + col_a;
    const T *from_b = b + (size_t)(idx / WVECS) * n + col0 + idx % WVECS * VEC;
    long long rows_left = ((long long)m - (long long)row0 - row_a + ROWS_APART - 1) / ROWS_APART;

    // Starts those copies of a step's tiles that come before products i. Copies of whole tiles are spread over half a
    // step, so that they never occupy the load units, which also load the operands, all at once.
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
        bool more = !WHOLE || k0 + WTK < k;  // if false, the last whole tiles are copied again, and not used
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
            // Fetch the operands of the next products before these products, also across steps.
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
                    int s = r % 2 ? WTN - 1 - q : q;  // so that products share an operand at the end of a row too
                    sum[r][s] += column[i % 2][r / VEC].at[r % VEC] * line[i % 2][s / VEC].at[s % VEC];
                }
        }
        if (WTK % 2)
            fetch(0, now, 0);
    }
}

// Writes a thread's sums to a tile of c, of which `rows` rows and `cols` columns are inside.
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

// Computes a block's tile of c.
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
// Six 16-byte loads serve 128 multiply-adds, and the order of the lanes lets half a warp's loads merge: the multiply-
// add units become the limit. STAGES steps are in flight by cp.async, asynchronous from sm_80 on. The copies of a step
// start one by one between products, so that the operands' loads do not wait behind them. Two sets of operands
// alternate, and a product shares an operand with the product before, which saves a read. What remains is the
// arithmetic of float itself; only the tensor cores do more of it.
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

// The next rung, a detour for small matrices, copies both matrices without transposing, 16 bytes a copy. A warp owns
// 64 x 64 elements of c (double: 64 x 32) as in warp-tile, a thread SLICE_M x SLICE_N of them. A thread's vectors of a
// run along k and serve VEC products; those of b run along n.
#define SLICE_M 8                      // rows of a thread's sums
#define SLICE_N (64 / (int)sizeof(T))  // columns of a thread's sums
#ifndef SLICE_STAGES
#define SLICE_STAGES 3  // steps whose tiles are in shared memory or being copied
#endif
#ifndef SLICES
#define SLICES 1  // parts of a step, one for each group of warps
#endif
// The warps of a part, in all and side by side; then the tiles of a step, for one part or several.
#define SLICE_WARPS(parts) (WARPS / (parts) > 0 ? WARPS / (parts) : 1)
#define SLICE_WIDE(parts) (SLICE_WARPS(parts) % 8 == 0 ? 4 : SLICE_WARPS(parts) % 2 == 0 ? 2 : 1)
#define SLICE_TILE_M(parts) (SLICE_WARPS(parts) / SLICE_WIDE(parts) * 64)
#define SLICE_TILE_N(parts) (SLICE_WIDE(parts) * 4 * SLICE_N)
#define SLICE_TK(parts) ((parts) > 1 ? 8 * (parts) : 16)                  // columns of a, and rows of b
#define SLICE_ROW_A(parts) (SLICE_TK(parts) + VEC)                        // padded: eight rows are in different banks
#define SLICE_STAGE(parts) (SLICE_TILE_M(parts) * SLICE_ROW_A(parts) + SLICE_TK(parts) * SLICE_TILE_N(parts))

// Computes a block's tile of c. VECTORS: all rows start at multiples of 16 bytes.
template <bool VECTORS, int PARTS>
__device__ __forceinline__ void sliced_tile(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m,
                                           int k, int n, T *tiles)
{
    const int tall = SLICE_TILE_M(PARTS), broad = SLICE_TILE_N(PARTS), step = SLICE_TK(PARTS);
    const int pitch = SLICE_ROW_A(PARTS), size = SLICE_STAGE(PARTS), beside = SLICE_WIDE(PARTS);
    // Blocks that run together work on STRIP rows of tiles and few columns, so that their parts of a and b fit the L2.
    unsigned tiles_m = ((unsigned)m + tall - 1) / tall, tiles_n = ((unsigned)n + broad - 1) / broad;
    unsigned strip = blockIdx.x / (STRIP * tiles_n) * STRIP, number = blockIdx.x - strip * tiles_n;
    unsigned high = min(tiles_m - strip, STRIP);
    size_t row0 = (size_t)(strip + number % high) * tall, col0 = (size_t)(number / high) * broad;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned lane = idx % 32, warp = idx / 32, part = warp / SLICE_WARPS(PARTS), mine = warp % SLICE_WARPS(PARTS);
    unsigned from_m = mine / beside * 64 + lane / 2 % 8;
    unsigned from_n = mine % beside * 4 * SLICE_N + (lane % 2 + lane / 16 * 2) * VEC;

    // A thread copies one vector of every apart-th row of a tile. Beyond the matrix it copies the rows and columns at
    // the edge again: their sums are not written.
    const int across_a = step / VEC, apart_a = BLOCK / across_a, each_a = (tall + apart_a - 1) / apart_a;
    const int across_b = broad / VEC, apart_b = BLOCK / across_b, each_b = (step + apart_b - 1) / apart_b;
    const int row_a = idx / across_a, at_a = idx % across_a * VEC, row_b = idx / across_b, at_b = idx % across_b * VEC;
    const T *from_a[each_a];
#pragma unroll
    for (int e = 0; e < each_a; e++)
        from_a[e] = a + min(row0 + row_a + e * apart_a, (size_t)m - 1) * k + at_a;
    int wide = n - (int)col0 - at_b;  // elements left in a row of b
    const T *from_b = b + (size_t)row_b * n + (VECTORS ? min(col0 + at_b, (size_t)n - VEC) : col0 + at_b);

    int deep = k;  // columns of a left
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

    const int depth = step / PARTS;  // columns of a in a step, for one part
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
            if (i == depth - 1) {  // the next operands are in the next tiles
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

    // Add the sums of the parts by shared memory: in each round the upper half of the parts gives its sums to the
    // lower.
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
// It pays if warp-tile has fewer tiles than there are multiprocessors, as at 1024; at 2048 warp-tile is ahead. What
// remains: a warp's 64 x 64 elements, so six loads for 128 products, and the arithmetic of float.
extern "C" __global__ void __launch_bounds__(BLOCK)
matmul_sliced(const T *__restrict__ a, const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];

    if (k % VEC == 0 && n % VEC == 0)
        sliced_tile<true, SLICES>(a, b, c, m, k, n, (T *)tiles);
    else
        sliced_tile<false, SLICES>(a, b, c, m, k, n, (T *)tiles);
}
