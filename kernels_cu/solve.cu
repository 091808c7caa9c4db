// Linear system: A x = b by Gauss-Jordan elimination with partial pivoting; in the last rungs by LU decomposition.
//
// a is n rows by n columns, row-major; b and x have n elements, all of type T. The elimination works on a copy ab: A
// with b as column n, and rows that start `pitch` elements apart. In step j the row with the largest element of column
// j becomes the pivot row. A multiple of it is subtracted from each other row, so that column j becomes 0 there. After
// n steps A is diagonal, and x = b / diagonal. All steps take n^3 operations; GFLOP/s count the 2/3 n^3 of LU. Step j
// reads and writes up to n^2 elements, for two operations each, so single steps are bound by memory: the ladder takes
// more and more steps at once. The difficulty: each step needs the pivot that the step before leaves.
//
// A rung of this ladder has several kernels, launched in order for each column or panel of columns. Read the ladder
// from top to bottom; it continues in solve_panels.cu and solve_cluster.cu. BDIMX and BDIMY are the threads of a block;
// x runs along a row.

#include "augment.cuh"

// Returns the largest candidate of the block's threads.
__device__ __forceinline__ Peak block_peak(Peak mine, unsigned idx)
{
    __shared__ Peak peaks[BLOCK];

    peaks[idx] = mine;
    __syncthreads();
    for (unsigned count = BLOCK; count > 1; count = (count + 1) / 2) {
        unsigned half = (count + 1) / 2;
        if (idx + half < count)
            peaks[idx] = larger(peaks[idx], peaks[idx + half]);
        __syncthreads();
    }
    return peaks[0];
}

// Finds the largest element of a column below the diagonal, one candidate a block.
// The elements are a row apart, so each takes its own sector. One launch cannot compare the candidates of its blocks.
extern "C" __global__ void solve_pivot_block(const T *ab, T *peak, int *peak_row, int n, int pitch, int col)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    Peak mine = {-1, col};
    for (size_t row = (size_t)col + blockIdx.x * BLOCK + idx; row < n; row += (size_t)gridDim.x * BLOCK)
        mine = larger(mine, {fabs(ab[row * pitch + col]), (int)row});
    mine = block_peak(mine, idx);
    if (idx == 0) {
        peak[blockIdx.x] = mine.size;
        peak_row[blockIdx.x] = mine.at;
    }
}

// Finds the pivot among the blocks' candidates, with a single block.
// This launch is for a few numbers: while it runs, the GPU waits.
extern "C" __global__ void solve_pivot(const T *peak, const int *peak_row, int *pivot, int count, int col)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    Peak mine = {-1, col};
    for (unsigned i = idx; i < count; i += BLOCK)
        mine = larger(mine, {peak[i], peak_row[i]});
    mine = block_peak(mine, idx);
    if (idx == 0)
        pivot[col] = mine.at;
}

// Exchanges the pivot row with the row on the diagonal, from the column of the pivot on.
extern "C" __global__ void solve_swap(T *ab, const int *pivot, int n, int pitch, int col)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    T *upper = ab + (size_t)col * pitch, *lower = ab + (size_t)pivot[col] * pitch;
    if (upper != lower)
        for (size_t c = (size_t)col + blockIdx.x * BLOCK + idx; c <= n; c += (size_t)gridDim.x * BLOCK) {
            T element = upper[c];
            upper[c] = lower[c];
            lower[c] = element;
        }
}

// Subtracts the pivot row from all others, one element a thread: the step of the four that does the work.
// Column j itself is not read again, so it does not change. What remains: rows are n + 1 elements long, so that most
// start inside a 32-byte sector, and a warp's 32 elements lie in five sectors of two cache lines, not in four of one.
extern "C" __global__ void solve_eliminate(T *ab, int n, int pitch, int col)
{
    const T *upper = ab + (size_t)col * pitch;
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < n; row += (size_t)gridDim.y * BDIMY) {
        T *lower = ab + row * pitch;
        if (row != col) {
            T factor = lower[col] / upper[col];
            for (size_t c = (size_t)col + 1 + blockIdx.x * BDIMX + threadIdx.x; c <= n; c += (size_t)gridDim.x * BDIMX)
                lower[c] -= factor * upper[c];
        }
    }
}

// Computes x from the diagonal matrix: the last launch of the first two rungs.
extern "C" __global__ void solve_divide(const T *ab, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t row = blockIdx.x * BLOCK + idx; row < n; row += (size_t)gridDim.x * BLOCK)
        x[row] = ab[row * pitch + n] / ab[row * pitch + row];
}

// Starts every row, and every warp's piece of it, at a multiple of 128 bytes.
// The pitch is n + 1 rounded up. The threads begin at the cache line of column j + 1; those before that column idle. A
// warp's 32 elements now lie in one cache line. What remains: four launches a column.
extern "C" __global__ void solve_eliminate_aligned(T *ab, int n, int pitch, int col)
{
    const T *upper = ab + (size_t)col * pitch;
    size_t first = (size_t)(col + 1) / LINE * LINE;
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < n; row += (size_t)gridDim.y * BDIMY) {
        T *lower = ab + row * pitch;
        if (row != col) {
            T factor = lower[col] / upper[col];
            for (size_t c = first + blockIdx.x * BDIMX + threadIdx.x; c <= n; c += (size_t)gridDim.x * BDIMX)
                if (c > col)
                    lower[c] -= factor * upper[c];
        }
    }
}

#ifndef ROWS
#define ROWS 4  // rows that a thread has in flight at once
#endif

// Takes one launch a column: the blocks find the pivot of the next column while they change that column.
// Every block picks the pivot from the candidates of the launch before, so there are few blocks with many rows. No row
// moves; `order` says which rows are used. What remains: for each column the whole matrix passes through the chip, for
// two operations an element.
extern "C" __global__ void solve_fused(T *ab, const T *peak, const int *peak_row, T *next_peak, int *next_row,
                                       int *order, int *pivot, int n, int pitch, int col, int count)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    Peak mine = {-1, 0};
    for (unsigned i = idx; i < count; i += BLOCK)
        mine = larger(mine, {peak[i], peak_row[i]});
    int chosen = block_peak(mine, idx).at;
    __syncthreads();

    const T *upper = ab + (size_t)chosen * pitch;
    T scale = 1 / upper[col];
    size_t first = (size_t)(col + 1) / LINE * LINE, apart = (size_t)gridDim.y * BDIMY;
    Peak next = {-1, 0};
    for (size_t c = first + blockIdx.x * BDIMX + threadIdx.x; c <= n; c += (size_t)gridDim.x * BDIMX) {
        T above = upper[c];
        for (size_t row0 = (size_t)blockIdx.y * BDIMY + threadIdx.y; c > col && row0 < n; row0 += ROWS * apart) {
            T factor[ROWS], element[ROWS];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                size_t row = row0 + r * apart < n ? row0 + r * apart : row0;
                factor[r] = ab[row * pitch + col];
                element[r] = ab[row * pitch + c];
            }
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                size_t row = row0 + r * apart;
                if (row < n && row != chosen) {
                    element[r] -= factor[r] * scale * above;
                    ab[row * pitch + c] = element[r];
                    if (c == col + 1 && order[row] < 0)
                        next = larger(next, {fabs(element[r]), (int)row});
                }
            }
        }
    }
    if (blockIdx.x == (col + 1 - first) / BDIMX % gridDim.x) {  // these blocks changed column j + 1
        next = block_peak(next, idx);
        if (idx == 0) {
            next_peak[blockIdx.y] = next.size;
            next_row[blockIdx.y] = next.at;
        }
    }
    if (blockIdx.x == 0 && blockIdx.y == 0 && idx == 0) {
        order[chosen] = col;
        pivot[col] = chosen;
    }
}

// Computes x if rows were not moved: element j is in the pivot row of column j.
extern "C" __global__ void solve_gather(const T *ab, const int *pivot, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t j = blockIdx.x * BLOCK + idx; j < n; j += (size_t)gridDim.x * BLOCK)
        x[j] = ab[(size_t)pivot[j] * pitch + n] / ab[(size_t)pivot[j] * pitch + j];
}
