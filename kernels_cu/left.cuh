// The kernel `lower`: rows that were pivots of earlier OUTER columns do not change any more. `cluster` uses it too.

#include "update.cuh"

// Applies a panel to the rows that are left.
extern "C" __global__ void __launch_bounds__(SPREAD)
solve_spread_left(T *ab, T *strip, const T *upper, const T *inverse, const int *pivot, int n, int pitch, int col,
                  int cols, int outer, int outer_cols, int next_cols)
{
    spread<false>(ab, strip, upper, inverse, nullptr, pivot, n, pitch, col, cols, outer, outer_cols, next_cols);
}

// Changes only the rows that are left, and finds x from its last elements up.
// The update does two thirds of the work, and launches of solve_back read half of the matrix once: 41 instead of 51 ms
// for n = 8192 on an H200. The panels remain: the more rows are left, the narrower is a panel, and the more often the
// OUTER columns are read and written.
extern "C" __global__ void __launch_bounds__(BLOCK)
solve_update_left(T *__restrict__ ab, const T *__restrict__ lifted, const int *__restrict__ pivot, int n, int pitch,
                  int outer, int outer_cols)
{
    update<false>(ab, lifted, nullptr, pivot, n, pitch, outer, outer_cols);
}

// Computes the elements of x that belong to the pivots of OUTER columns, one column a block. Later ones are known.
extern "C" __global__ void __launch_bounds__(BLOCK)
solve_back(const T *ab, const int *pivot, T *x, int n, int pitch, int outer, int outer_cols)
{
    __shared__ T part[BLOCK];

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    const T *row = ab + (size_t)pivot[outer + blockIdx.x] * pitch;
    T sum = 0;
#pragma unroll 8
    for (int c = outer + outer_cols + idx; c < n; c += BLOCK)
        sum += row[c] * x[c];
    part[idx] = sum;
    __syncthreads();
    for (unsigned count = BLOCK; count > 1; count = (count + 1) / 2) {
        unsigned half = (count + 1) / 2;
        if (idx + half < count)
            part[idx] += part[idx + half];
        __syncthreads();
    }
    if (idx == 0)
        x[outer + blockIdx.x] = row[n] - part[0];
}
