// Linear system by panels: many columns are eliminated before the rest of the matrix is touched, at two scales:
//
//     |<------ OUTER columns ----->|<----------- the rest ----------->|
//     | panel | panel | panel | .. |                                  |
//      solve_panel, solve_spread    solve_update
//      for each panel               once for OUTER columns
//
// A panel has as many columns as fit the registers of one block. For n = 1024 and float it has 16 columns, with 2 rows
// in each of 512 threads; for 4096 rows it has 8 columns, with 8 rows a thread.

// Eliminating a panel of columns J with the pivot rows P replaces it with factors
//     G = -A[i, J] inverse(A[P, J]) for the other rows i, and G = inverse(A[P, J]) in the rows P.
// With them all further columns K change at once: A[i, K] += G A[P, K], and A[P, K] = G A[P, K] in the rows P.
// A panel of two columns, whose pivot rows are p and q:
//
//     row p    2  1        becomes     0.5 -0.5     the inverse of  2 1
//     row q    0  1                    0    1                       0 1
//     row i    1  1                   -0.5 -0.5     1 1  - 0.5 (2 1)  - 0.5 (0 1)  =  0 0
//
// The kernels pass on:
//     strip           the panel, column by column, its rows in the order of the list `pivot`: neighbouring threads find
//                     neighbouring elements, wherever in the matrix their rows are
//     upper           A[P, K] for the other columns K of the OUTER ones, a row of outer_cols elements for each pivot
//     inverse         inverse(A[P, J]), cols x cols
//     pivot, place    the list of rows and each row's place in it: pivots in their order, then the rows that are left
//     lifted          A[P, K] for the rest, P the pivots of all OUTER columns
// A panel has `cols` columns from column `col` on; the OUTER columns are outer_cols from column `outer` on.

#include "left.cuh"

// Applies a panel to all rows.
extern "C" __global__ void __launch_bounds__(SPREAD)
solve_spread(T *ab, T *strip, const T *upper, const T *inverse, const int *place, int n, int pitch, int col, int cols,
             int outer, int outer_cols, int next_cols)
{
    spread<true>(ab, strip, upper, inverse, place, nullptr, n, pitch, col, cols, outer, outer_cols, next_cols);
}

// Changes all columns behind OUTER eliminated ones at once.
// The matrix passes through the chip once for OUTER columns instead of once for each, and the limit is the multiply-
// adds of a thread's 16 x 8 elements. The panels remain: one multiprocessor does their steps, one after the other.
extern "C" __global__ void __launch_bounds__(BLOCK)
solve_update(T *__restrict__ ab, const T *__restrict__ lifted, const int *__restrict__ place, int n, int pitch,
             int outer, int outer_cols)
{
    update<true>(ab, lifted, place, nullptr, n, pitch, outer, outer_cols);
}

// Reads x from the matrix that the panels leave: their pivots are 1.
extern "C" __global__ void solve_collect(const T *ab, const int *pivot, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t j = blockIdx.x * BLOCK + idx; j < n; j += (size_t)gridDim.x * BLOCK)
        x[j] = ab[(size_t)pivot[j] * pitch + n];
}

// The next rung, lower, stands in left.cuh. It no longer changes a row once the OUTER columns that it is a pivot of are
// done. Behind them the row keeps its coefficients: A becomes a triangle of blocks, as in an LU decomposition, and x is
// found from its last elements up. With OUTER = 1:
//
//     row p    2  1  |  4              1 0.5 |  2              1 0.5 |  2          x1 = 2 - 0.5 * 2 = 1
//     row q    1  1  |  3    becomes   0 0.5 |  1    becomes   0   1 |  2          x2 = 2
//
// Gauss-Jordan also subtracts row q from row p, to have x at once: n^3 operations for all columns, here 2/3 n^3. The
// list `pivot` has the rows in the order of their use: from place `outer` on, the pivots of these OUTER columns and the
// rows that are left.
