// Changes the other columns with the factors of panels, for the kernels blocked, lower and cluster.
//
// `spread` changes the other columns of the OUTER ones after each panel. `update` changes the rest once for OUTER
// columns: a matrix product like matmul's warp-tile. A warp has 4 x 8 lanes with SUMS_Y x SUMS_X sums each, 64 x 64
// elements (float64: 32 x 64). With 8 warps, 4 by 2, a block has a tile of 256 x 128 floats. One step takes 16 pivot
// rows: 16 x (256 + 4 + 128) floats, 24.25 KiB, are copied to shared memory; 4 of 260 are padding.

#include "async_copy.cuh"
#include "panel.cuh"

#ifndef SPREAD_ROWS
#define SPREAD_ROWS 16  // rows of a block of `spread`
#endif
#define SPREAD (SPREAD_ROWS * WIDEST)  // threads of a block

// Applies a panel to the other OUTER columns, and copies the next panel's columns to the strip.
// Each block takes SPREAD_ROWS rows in order. The place of a row says what it is:
//
//     place < col          a pivot of an earlier panel. No thread of solve_panel held it, so the strip still has
//                          A[i, J], and the factors are computed here: G = -A[i, J] inverse
//     col <= place         a pivot of this panel: the strip has its G, and A[P, K] = G A[P, K]
//       < col + cols
//     place >= col + cols  a row that is left: the strip has its G, and A[i, K] += G A[P, K]
//
// The launch before the first panel of OUTER columns has cols = 0: it only fills the strip.
// ALL: all rows; else those from place `outer` of the list `pivot` on.
template <bool ALL>
__device__ __forceinline__ void spread(T *ab, T *strip, const T *upper, const T *inverse, const int *place,
                                       const int *pivot, int n, int pitch, int col, int cols, int outer,
                                       int outer_cols, int next_cols)
{
    __shared__ T tile[WIDEST][OUTER];
    __shared__ T inner[WIDEST][WIDEST];
    __shared__ T factors[WIDEST][SPREAD_ROWS + 1];
    __shared__ T next[WIDEST][SPREAD_ROWS + 1];
    __shared__ int at[SPREAD_ROWS];   // the places of the rows in the list
    __shared__ int row[SPREAD_ROWS];  // the numbers of the rows

    unsigned idx = threadIdx.x, r = idx % SPREAD_ROWS, c = idx / SPREAD_ROWS;
    int first = (ALL ? 0 : outer) + blockIdx.x * SPREAD_ROWS;

    // A[P, K], the inverse, the places
    for (unsigned i = idx; i < cols * outer_cols; i += SPREAD)
        if (outer + i % outer_cols < col || outer + i % outer_cols >= col + cols)
            tile[i / outer_cols][i % outer_cols] = upper[i];
    if (idx < cols * cols)
        inner[idx / cols][idx % cols] = inverse[idx];
    if (idx < SPREAD_ROWS) {
        int i = first + idx;
        at[idx] = i >= n ? n : ALL ? place[i] : i;
        row[idx] = i >= n ? n : ALL ? i : pivot[i];
    }
    __syncthreads();

    // G: the strip has it, except for pivots of earlier panels
    T *element_of_strip = strip + c * (size_t)n + at[r];
    factors[c][r] = c < cols && at[r] < n ? *element_of_strip : (T)0;
    __syncthreads();
    T own = factors[c][r];
    if (at[r] < col && c < cols) {
        own = 0;
        for (int t = 0; t < cols; t++)
            own -= factors[t][r] * inner[t][c];
    }
    __syncthreads();
    factors[c][r] = own;
    __syncthreads();

    // The OUTER columns: G in the panel's columns, sums in the others
    for (unsigned i = idx; i < SPREAD_ROWS * outer_cols; i += SPREAD) {
        unsigned y = i / outer_cols, x = outer + i % outer_cols;
        if (at[y] < n) {
            T *element = ab + (size_t)row[y] * pitch + x, sum;
            if (x >= col && x < col + cols)
                sum = factors[x - col][y];
            else {
                sum = at[y] >= col && at[y] < col + cols ? (T)0 : *element;
                for (int t = 0; t < cols; t++)
                    sum += factors[t][y] * tile[t][x - outer];
            }
            if (cols > 0)
                *element = sum;
            if (x >= col + cols && x < col + cols + next_cols)
                next[x - col - cols][y] = sum;
        }
    }
    __syncthreads();

    if (c < next_cols && at[r] < n)
        *element_of_strip = next[c][r];
}

// Copies the pivot rows of OUTER columns to `lifted`, from the first column behind them on: the update changes them.
extern "C" __global__ void solve_lift(const T *ab, const int *pivot, T *lifted, int pitch, int outer, int first)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    const T *from = ab + (size_t)pivot[outer + blockIdx.y] * pitch;
    for (size_t c = (size_t)first + blockIdx.x * BLOCK + idx; c < pitch; c += (size_t)gridDim.x * BLOCK)
        lifted[(size_t)blockIdx.y * pitch + c] = from[c];
}

#ifndef SUMS_Y
#define SUMS_Y (64 / (int)sizeof(T))  // rows of a thread's sums
#endif
#ifndef SUMS_X
#define SUMS_X 8  // columns of a thread's sums
#endif
#ifndef STEP
#define STEP 16  // pivot rows in the tiles of one step
#endif
#ifndef STAGES
#define STAGES 3  // steps whose tiles are in shared memory or being copied
#endif
#define WARPS (BLOCK / 32)
#define WARPS_X (WARPS % 2 == 0 ? 2 : 1)
#define WARPS_Y (WARPS / WARPS_X > 0 ? WARPS / WARPS_X : 1)
#define TILE_Y (WARPS_Y * 4 * SUMS_Y)
#define TILE_X (WARPS_X * 8 * SUMS_X)
#define STAGE (STEP * (TILE_Y + 4 + TILE_X))  // elements of the tiles of one step

// Adds a matrix product to the columns behind OUTER eliminated ones. ALL: all rows; else those from place `outer` of
// the list `pivot` on.
template <bool ALL>
__device__ __forceinline__ void update(T *__restrict__ ab, const T *__restrict__ lifted,
                                       const int *__restrict__ place, const int *__restrict__ pivot, int n, int pitch,
                                       int outer, int outer_cols)
{
    __shared__ int listed[ALL ? 1 : TILE_Y];
    extern __shared__ uint4 tiles[];
    T(&tile_g)[STAGES][STEP][TILE_Y + 4] = *(T(*)[STAGES][STEP][TILE_Y + 4])tiles;
    T(&tile_u)[STAGES][STEP][TILE_X] = *(T(*)[STAGES][STEP][TILE_X])(&tile_g + 1);

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32;
    size_t row0 = (ALL ? 0 : outer) + (size_t)blockIdx.y * TILE_Y;  // in the list
    size_t col0 = (outer + outer_cols) / VEC * VEC + (size_t)blockIdx.x * TILE_X;
    // Neighbouring lanes share their columns, lanes two apart their rows, so that a half warp's 16-byte loads merge.
    unsigned from_y = warp / WARPS_X * 4 * SUMS_Y + (lane % 2 + lane / 16 * 2) * VEC;
    unsigned from_x = warp % WARPS_X * 8 * SUMS_X + lane / 2 % 8 * VEC;

    if (!ALL) {
        for (unsigned y = idx; y < TILE_Y; y += BLOCK)
            listed[y] = row0 + y < n ? pivot[row0 + y] : 0;
        __syncthreads();
    }
    auto row_of = [&](unsigned y) { return ALL ? row0 + y : (size_t)listed[y]; };

    auto load = [&](int stage, int t0) {
#pragma unroll
        for (unsigned i = idx; i < TILE_Y * STEP; i += BLOCK) {
            unsigned y = i / STEP, t = i % STEP;
            copy_async<sizeof(T), false>(&tile_g[stage][t][y], ab + row_of(y) * pitch + outer + t0 + t,
                                  row0 + y < n && t0 + t < outer_cols);
        }
#pragma unroll
        for (unsigned i = idx; i < STEP * TILE_X / VEC; i += BLOCK) {
            unsigned t = i / (TILE_X / VEC), x = i % (TILE_X / VEC) * VEC;
            copy_async<16, false>(&tile_u[stage][t][x], lifted + (size_t)(t0 + t) * pitch + col0 + x,
                           t0 + t < outer_cols && col0 + x < pitch);
        }
    };

    int steps = (outer_cols - 1) / STEP + 1;
#pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
        if (stage < steps)
            load(stage, stage * STEP);
        commit_copies();
    }
    T sum[SUMS_Y][SUMS_X] = {};
    for (int step = 0; step < steps; step++) {
        wait_copies<STAGES - 2>();
        __syncthreads();
        if (step + STAGES - 1 < steps)
            load((step + STAGES - 1) % STAGES, (step + STAGES - 1) * STEP);
        commit_copies();
#pragma unroll
        for (int t = 0; t < STEP; t++) {
            Vector g[SUMS_Y / VEC], u[SUMS_X / VEC];
#pragma unroll
            for (int r = 0; r < SUMS_Y / VEC; r++)
                g[r].all = *(const uint4 *)&tile_g[step % STAGES][t][from_y + r * 4 * VEC];
#pragma unroll
            for (int s = 0; s < SUMS_X / VEC; s++)
                u[s].all = *(const uint4 *)&tile_u[step % STAGES][t][from_x + s * 8 * VEC];
#pragma unroll
            for (int r = 0; r < SUMS_Y; r++)
#pragma unroll
                for (int s = 0; s < SUMS_X; s++)
                    sum[r][s] += g[r / VEC].at[r % VEC] * u[s / VEC].at[s % VEC];
        }
    }
#pragma unroll
    for (int r0 = 0; r0 < SUMS_Y; r0 += 4) {
        Vector there[4][SUMS_X / VEC];
#pragma unroll
        for (int r = 0; r < 4; r++) {
            unsigned y = from_y + (r0 + r) / VEC * 4 * VEC + (r0 + r) % VEC;
            size_t row = row_of(y);
#pragma unroll
            for (int s = 0; s < SUMS_X / VEC; s++) {
                size_t c = col0 + from_x + s * 8 * VEC;
                there[r][s].all = make_uint4(0, 0, 0, 0);
                if (row0 + y < n && c < pitch &&
                    (ALL ? place[row] < outer || place[row] >= outer + outer_cols : row0 + y >= outer + outer_cols))
                    there[r][s].all = *(const uint4 *)&ab[row * pitch + c];
            }
        }
#pragma unroll
        for (int r = 0; r < 4; r++) {
            unsigned y = from_y + (r0 + r) / VEC * 4 * VEC + (r0 + r) % VEC;
            size_t row = row_of(y);
#pragma unroll
            for (int s = 0; s < SUMS_X / VEC; s++) {
                size_t c = col0 + from_x + s * 8 * VEC;
#pragma unroll
                for (int e = 0; e < VEC; e++)
                    there[r][s].at[e] += sum[r0 + r][s * VEC + e];
                if (row0 + y < n && c < pitch)
                    *(uint4 *)&ab[row * pitch + c] = there[r][s].all;
            }
        }
    }
}
