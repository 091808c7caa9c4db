// Eliminates a panel of columns with one block, for the kernels blocked, lower and cluster.
//
// The block holds the panel in registers: row r of thread idx is row idx + r * PANEL of the rows that are left. For
// each column, every thread finds its largest element in rows that were not a pivot. Every warp finds the largest of
// its threads, and writes it and its whole row to shared memory, as an offer. After one barrier all threads choose the
// same pivot from the offers of the warps and subtract its row. The offers of successive columns alternate between two
// buffers, so a second barrier is not needed.
//
// Registers cannot be indexed, and unrolled, the loop over the columns would be thousands of instructions. So the
// current column is always held[r][0]: each step moves the others up by one, and puts the factor F that the current
// column became at the end. For the panel of solve_panels.cu, with the pivots in brackets:
//
//               a    b           b    F(a)        F(a) F(b)
//     row p    [2]   1          0.5   0.5         0.5 -0.5
//     row q     0    1          [1]   0           0    1
//     row i     1    1          0.5  -0.5        -0.5 -0.5
//
// In the first step the scale is 1/2. Row i loses (1 * 1/2) times row p, so that its b becomes 1 - 1/2 * 1 = 0.5, and
// the factor -0.5 replaces a. Row p becomes 1/2 times its b, then the scale.

#include "augment.cuh"

#ifndef PANEL
#define PANEL 512  // threads of the block that eliminates a panel
#endif
#ifndef HELD
#define HELD (256 / (int)sizeof(T))  // elements of the panel in each thread's registers
#endif
#ifndef WIDEST
#define WIDEST 16  // columns of a panel at most
#endif
#define COLUMNS(rows) (HELD / (rows) < WIDEST ? HELD / (rows) : WIDEST)  // of a panel with `rows` rows a thread
#ifndef OUTER
#define OUTER 64  // columns between updates of the rest
#endif
#define VEC (16 / (int)sizeof(T))        // elements in 16 bytes

union Vector { uint4 all; T at[VEC]; };

// Returns the largest of a warp's candidates.
__device__ __forceinline__ Peak warp_peak(Peak p)
{
#if __CUDA_ARCH__ >= 800
    const bool by_bits = sizeof(T) == 4;  // floats that are not negative can be compared as integers, by their bits
    if (by_bits) {
        int bits = __float_as_int(p.size), most = __reduce_max_sync(~0u, bits);
        p = {(T)__int_as_float(most), __reduce_min_sync(~0u, bits == most ? p.at : 2147483647)};
    }
#else
    const bool by_bits = false;
#endif
#pragma unroll
    for (int distance = by_bits ? 0 : 16; distance > 0; distance /= 2)
        p = larger(p, {__shfl_xor_sync(~0u, p.size, distance), __shfl_xor_sync(~0u, p.at, distance)});
    return p;
}

// Reads a thread's rows, with zeros beyond the panel's columns and rows. Returns a bit for each row that exists: no row
// has been a pivot yet.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ unsigned load_rows(T (&held)[HOLDS][COLS], const T *panel, int n, int left, int cols,
                                              int idx)
{
    unsigned unused = 0;
#pragma unroll
    for (int r = 0; r < HOLDS; r++) {
        bool inside = idx + r * THREADS < left;
        const T *from = panel + idx + r * THREADS;
        unused |= inside ? 1u << r : 0;
#pragma unroll
        for (int c = 0; c < COLS; c++, from += n)
            held[r][c] = inside && c < cols ? *from : (T)0;
    }
    return unused;
}

// Writes a thread's rows back to the strip.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ void store_rows(const T (&held)[HOLDS][COLS], T *panel, int n, int left, int cols, int idx)
{
#pragma unroll
    for (int r = 0; r < HOLDS; r++)
        if (idx + r * THREADS < left) {
            T *to = panel + idx + r * THREADS;
#pragma unroll
            for (int c = 0; c < COLS; c++, to += n)
                if (c < cols)
                    *to = held[r][c];
        }
}

// Sets `mine` to the largest element of the thread's unused rows in the current column.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ void find_peak(Peak &mine, const T (&held)[HOLDS][COLS], unsigned unused, int idx)
{
#pragma unroll
    for (int r = 0; r < HOLDS; r++)
        if ((unused >> r & 1) && fabs(held[r][0]) > mine.size)
            mine = {fabs(held[r][0]), idx + r * THREADS};
}

// Subtracts the pivot row from the thread's rows, so that the current column becomes 0, and moves the columns up.
template <int HOLDS, int COLS>
__device__ __forceinline__ void subtract_row(T (&held)[HOLDS][COLS], const Vector (&line)[COLS / VEC], T scale)
{
#pragma unroll
    for (int r = 0; r < HOLDS; r++) {
        T factor = held[r][0] * scale;
#pragma unroll
        for (int c = 1; c < COLS; c++)
            held[r][c - 1] = held[r][c] - factor * line[c / VEC].at[c % VEC];
        held[r][COLS - 1] = -factor;
    }
}

// Divides the pivot row by the pivot and marks it as used, if the thread holds it.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ void scale_row(T (&held)[HOLDS][COLS], unsigned &unused, const Vector (&line)[COLS / VEC],
                                          T scale, Peak best, int idx)
{
#pragma unroll
    for (int r = 0; r < HOLDS; r++)
        if (best.at == idx + r * THREADS) {
            unused &= ~(1u << r);
#pragma unroll
            for (int c = 1; c < COLS; c++)
                held[r][c - 1] = line[c / VEC].at[c % VEC] * scale;
            held[r][COLS - 1] = scale;
        }
}

// Moves the columns up by one without a step. A panel with fewer than COLS columns needs it for each missing column, so
// that the first factor ends in held[r][0].
template <int HOLDS, int COLS>
__device__ __forceinline__ void move_columns(T (&held)[HOLDS][COLS])
{
#pragma unroll
    for (int r = 0; r < HOLDS; r++) {
        T first = held[r][0];
#pragma unroll
        for (int c = 1; c < COLS; c++)
            held[r][c - 1] = held[r][c];
        held[r][COLS - 1] = first;
    }
}

// Finds the largest unused element in the first column of a warp's rows, and stores it and its row.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ void offer_row(Peak &peak, T (&line)[COLS], const T (&held)[HOLDS][COLS], unsigned unused,
                                          int idx)
{
    Peak mine = {-1, 0};
    find_peak<THREADS>(mine, held, unused, idx);
    Peak best = warp_peak(mine);
    if (best.at == mine.at && mine.size >= 0)
#pragma unroll
        for (int r = 0; r < HOLDS; r++)
            if (best.at == idx + r * THREADS)
#pragma unroll
                for (int c = 0; c < COLS; c += VEC) {
                    Vector v;
#pragma unroll
                    for (int e = 0; e < VEC; e++)
                        v.at[e] = held[r][c + e];
                    *(uint4 *)&line[c] = v.all;
                }
    if (idx % 32 == 0)
        peak = best;
}

// Eliminates the first column of a thread's rows with the pivot row `row`.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ void use_row(T (&held)[HOLDS][COLS], unsigned &unused, const T (&row)[COLS], Peak best,
                                        int idx)
{
    Vector line[COLS / VEC];
#pragma unroll
    for (int c = 0; c < COLS / VEC; c++)
        line[c].all = *(const uint4 *)&row[c * VEC];

    T scale = 1 / line[0].at[0];
    subtract_row(held, line, scale);
    if (best.at % THREADS == idx)
        scale_row<THREADS>(held, unused, line, scale, best, idx);
}

// When a panel ends, its pivot rows move to the front of the list and of the strip. The rows at the front take the
// places that become free. So the rows that are left stay together, and the next panel is a strip again.

// Moves the pivots of a panel, at `chosen` in the list of unused rows, to the front of the list. One warp does it, with
// a lane for each of the `cols` places at the front. A row at the front that is not a pivot moves to the place of a
// pivot from behind: `from` lists the places of such rows, `to` their new places. Two pivots at 5 and 0 of six rows:
//
//     place      0  1  2  3  4  5
//     before     a  b  c  d  e  f       chosen = 5 0, from = 1, to = 5
//     after      f  a  c  d  e  b       rows = f a, displaced = a b
//
__device__ __forceinline__ void order_pivots(int *pivot, int *place, int col, int cols, const int *chosen, int *rows,
                                             int *displaced, int *from, int *to, int idx)
{
    bool front = idx < cols, leaves = front, hole = front && chosen[idx] >= cols;
    for (int t = 0; t < cols; t++)
        leaves = leaves && chosen[t] != idx;
    unsigned below = (1u << idx) - 1, all = __ballot_sync(~0u, leaves), holes = __ballot_sync(~0u, hole);
    if (leaves)
        from[__popc(all & below)] = idx;
    if (hole)
        to[__popc(holes & below)] = chosen[idx];
    if (front) {
        rows[idx] = pivot[col + chosen[idx]];
        displaced[idx] = pivot[col + idx];
    }
    __syncwarp();
    if (front) {
        pivot[col + idx] = rows[idx];
        place[rows[idx]] = col + idx;
    }
    if (leaves) {
        int at = to[__popc(all & below)];
        pivot[col + at] = displaced[idx];
        place[displaced[idx]] = col + at;
    }
}

// Moves the rows of the strip like those of the list, with a thread for each element at the front, and writes the
// inverse, which the pivot rows of the panel hold.
__device__ __forceinline__ void order_strip(T *strip, T *inverse, int n, int col, int cols, const int *chosen,
                                            const int *from, const int *to, int idx)
{
    T own = 0, other = 0;  // elements of the strip: of a pivot row, of a row that makes room for it
    int t = idx / WIDEST, c = idx % WIDEST;
    bool moves = t < cols && c < cols, leaves = moves;
    T *column = strip + (size_t)c * n + col;
    if (moves) {
        own = column[chosen[t]];
        other = column[t];
        inverse[t * cols + c] = own;
        for (int u = 0; u < cols; u++)
            leaves = leaves && chosen[u] != t;
    }
    __syncthreads();
    if (moves)
        column[t] = own;
    if (leaves) {
        int rank = 0;
        while (from[rank] != t)
            rank++;
        column[to[rank]] = other;
    }
}

// Ends a panel: moves its pivots to the front, and writes their rows' elements in the other OUTER columns to `upper`.
__device__ __forceinline__ void end_panel(const T *ab, T *strip, T *upper, T *inverse, int *place, int *pivot, int n,
                                          int pitch, int col, int cols, int outer, int outer_cols, const int *chosen)
{
    __shared__ int rows[WIDEST], displaced[WIDEST], from[WIDEST], to[WIDEST];

    int idx = threadIdx.x;
    __syncthreads();
    if (idx < 32)
        order_pivots(pivot, place, col, cols, chosen, rows, displaced, from, to, idx);
    __syncthreads();
    for (int i = idx; i < cols * outer_cols; i += PANEL) {
        int c = outer + i % outer_cols;
        if (c < col || c >= col + cols)
            upper[i] = ab[(size_t)rows[i / outer_cols] * pitch + c];
    }
    order_strip(strip, inverse, n, col, cols, chosen, from, to, idx);
}

// Eliminates a panel of up to COLS columns with one block; each thread holds HOLDS rows in registers.
template <int HOLDS, int COLS>
__device__ __forceinline__ void eliminate_panel(const T *ab, T *strip, T *upper, T *inverse, int *place, int *pivot,
                                                int n, int pitch, int col, int cols, int outer, int outer_cols)
{
    const int warps = PANEL / 32;
    __shared__ Peak peaks[2][warps];
    __shared__ __align__(16) T lines[2][warps][COLS];
    __shared__ int chosen[COLS];

    int idx = threadIdx.x, lane = idx % 32, warp = idx / 32, left = n - col;
    T held[HOLDS][COLS];
    unsigned unused = load_rows<PANEL>(held, strip + col, n, left, cols, idx);
#pragma unroll 1
    for (int t = 0; t < cols; t++) {
        offer_row<PANEL>(peaks[t % 2][warp], lines[t % 2][warp], held, unused, idx);
        __syncthreads();

        // The best candidate of all warps and its row
        Peak best = warp_peak(peaks[t % 2][lane % warps]);
        use_row<PANEL>(held, unused, lines[t % 2][best.at % PANEL / 32], best, idx);
        if (idx == 0)
            chosen[t] = best.at;
    }
    for (int t = cols; t < COLS; t++)
        move_columns(held);
    store_rows<PANEL>(held, strip + col, n, left, cols, idx);
    end_panel(ab, strip, upper, inverse, place, pivot, n, pitch, col, cols, outer, outer_cols, chosen);
}

// Eliminates one column of any length, which stays in device memory.
__device__ __forceinline__ void eliminate_column(const T *ab, T *strip, T *upper, T *inverse, int *place, int *pivot,
                                                 int n, int pitch, int col, int outer, int outer_cols)
{
    __shared__ Peak peaks[PANEL / 32];
    __shared__ int chosen[1];

    int idx = threadIdx.x, left = n - col;
    Peak best = {-1, 0};
    for (int i = idx; i < left; i += PANEL)
        best = larger(best, {fabs(strip[col + i]), i});
    best = warp_peak(best);
    if (idx % 32 == 0)
        peaks[idx / 32] = best;
    __syncthreads();
    best = warp_peak(peaks[idx % (PANEL / 32)]);
    T scale = 1 / strip[col + best.at];
    __syncthreads();
    for (int i = idx; i < left; i += PANEL) {
        T *element = &strip[col + i];
        *element = i == best.at ? scale : -*element * scale;
    }
    if (idx == 0)
        chosen[0] = best.at;
    end_panel(ab, strip, upper, inverse, place, pivot, n, pitch, col, 1, outer, outer_cols, chosen);
}

// Eliminates a panel, with `holds` rows in each thread's registers: the fewer rows are left, the wider is the panel.
// One block does it, so that a pivot costs a barrier instead of a launch. The other multiprocessors wait for it.
extern "C" __global__ void __launch_bounds__(PANEL)
solve_panel(const T *ab, T *strip, T *upper, T *inverse, int *place, int *pivot, int n, int pitch, int col, int cols,
            int outer, int outer_cols, int holds)
{
#define PANEL_OF(holds) \
    eliminate_panel<holds, COLUMNS(holds)>(ab, strip, upper, inverse, place, pivot, n, pitch, col, cols, outer, \
                                           outer_cols)
    switch (holds) {
    case 2: PANEL_OF(2); break;
    case 4: PANEL_OF(4); break;
    case 8: PANEL_OF(8); break;
    case 16: PANEL_OF(16); break;
    default: eliminate_column(ab, strip, upper, inverse, place, pivot, n, pitch, col, outer, outer_cols);
    }
}
