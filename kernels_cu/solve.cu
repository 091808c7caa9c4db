// Linear system: A x = b by Gauss-Jordan elimination with partial pivoting, and by LU decomposition in the last rungs.
//
// a is n rows by n columns, row-major, b and x have n elements, all of type T. The elimination works on a copy ab, A
// with b as column n, whose rows start `pitch` elements apart. In step j the row with the largest element of column j
// becomes the pivot row, and a multiple of it is subtracted from every other row so that column j is 0 there: after n
// steps A is diagonal and x can be read off. All steps together are n^3 operations; GFLOP/s count the 2/3 n^3 of LU.
//
// Step j changes the columns behind j: it reads and writes up to n^2 elements, for two operations each. Done step by
// step the elimination is bound by memory, and the ladder is about taking more steps at once. The difficulty is that
// steps follow each other: each needs the pivot that the one before leaves behind.
//
// A rung is several kernels, launched in order for each column or panel of columns; what they pass on stays on the GPU.
// Read the ladder from top to bottom. BDIMX and BDIMY are the threads of a block; x runs along a row.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 32
#endif
#ifndef BDIMY
#define BDIMY 8
#endif

#define BLOCK (BDIMX * BDIMY)          // threads in a block
#define LINE (128 / (int)sizeof(T))    // elements in the 128 bytes of a cache line

// A candidate for the pivot: the size of the element and where it is, the first of equals.
struct Peak { T size; int at; };

__device__ __forceinline__ Peak larger(Peak p, Peak q)
{
    return q.size > p.size || (q.size == p.size && q.at < p.at) ? q : p;
}

// The largest of all threads' candidates.
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

// Copies a and b side by side into ab, so that every run starts from the same matrix, and marks all rows as unused.
// Elements behind column n, where the pitch has room, become 0. pivot lists the rows in the order of their use, and
// place says where in that list a row is.
extern "C" __global__ void solve_augment(const T *a, const T *b, T *ab, int *order, int *pivot, int *place, int n,
                                         int pitch)
{
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < n; row += (size_t)gridDim.y * BDIMY) {
        for (size_t c = (size_t)blockIdx.x * BDIMX + threadIdx.x; c < pitch; c += (size_t)gridDim.x * BDIMX)
            ab[row * pitch + c] = c < n ? a[row * n + c] : c == n ? b[row] : (T)0;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            order[row] = -1;
            pivot[row] = row;
            place[row] = row;
        }
    }
}

// Finds the largest element of a column below the diagonal, one candidate a block.
// The elements are a row apart, so each takes a sector of its own; one launch cannot compare the blocks' candidates.
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
// A launch for a few numbers: while it runs, the GPU waits.
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
// Column j itself is not read again and stays as it is. What remains: rows are n + 1 elements long, so that most start
// amid a 32-byte sector, and a warp's 32 elements lie in five sectors of two cache lines instead of four of one.
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

// Reads x off the diagonal matrix: the last launch of the first two rungs.
extern "C" __global__ void solve_divide(const T *ab, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t row = blockIdx.x * BLOCK + idx; row < n; row += (size_t)gridDim.x * BLOCK)
        x[row] = ab[row * pitch + n] / ab[row * pitch + row];
}

// Starts every row, and every warp's piece of it, at a multiple of 128 bytes.
// The pitch is n + 1 rounded up, and the threads count from the line in which column j + 1 lies; those before it have
// nothing to do. A warp's 32 elements now lie in one cache line. What remains: four launches a column.
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
#define ROWS 4  // rows that a thread has under way at once
#endif

// Takes one launch a column: the blocks find the pivot of the next column while they have it in hand.
// Every block picks the pivot from the candidates that the launch before left, so blocks are few and take many rows;
// no row is moved, `order` remembers which are used. What remains: for each column the whole matrix passes through
// the chip, for two operations an element.
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
    if (blockIdx.x == (col + 1 - first) / BDIMX % gridDim.x) {  // these blocks have column j + 1
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

// Reads x where rows were not moved: element j is in the row that was the pivot of column j.
extern "C" __global__ void solve_gather(const T *ab, const int *pivot, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t j = blockIdx.x * BLOCK + idx; j < n; j += (size_t)gridDim.x * BLOCK)
        x[j] = ab[(size_t)pivot[j] * pitch + n] / ab[(size_t)pivot[j] * pitch + j];
}

// From here many columns are eliminated before the rest of the matrix is touched, at two scales:
//
//     |<------ OUTER columns ----->|<----------- the rest ----------->|
//     | panel | panel | panel | .. |                                  |
//      solve_panel, solve_spread    solve_update
//      for each panel               once for OUTER columns
//
// A panel is as wide as the registers of one block hold. For n = 1024 and float it has 16 columns, of 2 rows in each of
// 512 threads; a rest of 4096 rows takes 8 rows a thread and panels of 8 columns.
//
// Eliminating a panel of columns J with the pivot rows P turns it, in place, into factors
//     G = -A[i, J] inverse(A[P, J]) for the other rows i, and G = inverse(A[P, J]) in the rows P.
// With them all further columns K change at once: A[i, K] += G A[P, K], and A[P, K] = G A[P, K] in the rows P.
// A panel of two columns, whose pivot rows are p and q:
//
//     row p    2  1        becomes     0.5 -0.5     the inverse of  2 1
//     row q    0  1                    0    1                       0 1
//     row i    1  1                   -0.5 -0.5     1 1  - 0.5 (2 1)  - 0.5 (0 1)  =  0 0
//
// What the kernels pass on:
//     strip           the panel, column by column with its rows in the order of the list `pivot`: neighbouring threads
//                     find neighbouring elements, wherever in the matrix the rows are that are left
//     upper           A[P, K] for the other columns K of the OUTER ones, a row of outer_cols elements for each pivot
//     inverse         inverse(A[P, J]), cols x cols
//     pivot, place    the list of rows and where in it a row is: pivots in their order, then the rows that are left
//     lifted          A[P, K] for the rest, P the pivots of all OUTER columns
// A panel begins at column `col` and has `cols` of them; the OUTER columns are the outer_cols from `outer` on.
#ifndef PANEL
#define PANEL 512  // threads of the block that eliminates a panel
#endif
#ifndef HELD
#define HELD (256 / (int)sizeof(T))  // elements of the panel that each holds in registers
#endif
#ifndef WIDEST
#define WIDEST 16  // columns of a panel at most
#endif
#define COLUMNS(rows) (HELD / (rows) < WIDEST ? HELD / (rows) : WIDEST)  // that fit with so many rows a thread
#ifndef OUTER
#define OUTER 64  // columns between updates of the rest
#endif
#define VEC (16 / (int)sizeof(T))        // elements in 16 bytes

union Vector { uint4 all; T at[VEC]; };

// The largest of a warp's candidates.
__device__ __forceinline__ Peak warp_peak(Peak p)
{
#if __CUDA_ARCH__ >= 800
    const bool by_bits = sizeof(T) == 4;  // floats that are not negative are ordered as their bits are
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

// solve_panel holds its panel in registers: row r of thread idx is row idx + r * PANEL of those left. For each column
// in turn every thread finds its largest unused element, every warp the largest of its threads, which it offers in
// shared memory together with the whole row; after one barrier all pick the same pivot from the warps' offers, have its
// row at hand and subtract it. The offers of successive columns take turns in two places: no second barrier is needed.
//
// Registers cannot be indexed, and unrolled the loop over the columns would be thousands of instructions. So the column in
// hand is always held[r][0]: in each step the others move up by one, and it goes to the end as the factor F that it
// became. The panel above, with the pivots in brackets:
//
//               a    b           b    F(a)        F(a) F(b)
//     row p    [2]   1          0.5   0.5         0.5 -0.5
//     row q     0    1          [1]   0           0    1
//     row i     1    1          0.5  -0.5        -0.5 -0.5
//
// In the first step the scale is 1/2; row i is to lose (1 * 1/2) times row p, so that its b becomes 1 - 1/2 * 1 = 0.5
// and the factor -0.5 takes the place of a. Row p itself becomes 1/2 times its b, and the scale.

// Reads a thread's rows, with zeros for columns and rows that the panel does not have, and returns a bit for each row
// that is there: none has been a pivot yet.
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

// Takes the largest element of the thread's unused rows in the column in hand for `mine`.
template <int THREADS, int HOLDS, int COLS>
__device__ __forceinline__ void find_peak(Peak &mine, const T (&held)[HOLDS][COLS], unsigned unused, int idx)
{
#pragma unroll
    for (int r = 0; r < HOLDS; r++)
        if ((unused >> r & 1) && fabs(held[r][0]) > mine.size)
            mine = {fabs(held[r][0]), idx + r * THREADS};
}

// Subtracts the pivot row from all the thread's rows, so that the column in hand becomes 0, and moves the columns up.
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

// Makes the pivot row, if the thread has it, what it is divided by the pivot, and marks it as used.
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

// Moves the columns up by one without a step, as often as a panel has fewer than COLS columns: then the first factor is
// held[r][0].
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

// Finds the largest element that is left in the first column of a warp's rows, and puts down its row.
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

// Eliminates the first column of a thread's rows with the row of the largest element, which one thread has itself.
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

// When a panel ends, its pivots' rows come to the front of the list and of the strip, and the rows that stood there
// take the places that these leave. So the rows that are left stay together, and the next panel is a strip again.

// Puts the pivots of a panel, which are at `chosen` in the list of unused rows, in front of the list: one warp, a lane
// for each of the `cols` places in front. A row in front that is not a pivot goes to the place that a pivot from behind
// leaves: `from` lists those that go, `to` where. Two pivots at 5 and 0 of six rows:
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

// Moves the rows of the strip as the list's, a thread for each element in front, and hands on the inverse: what the
// panel left in the pivot rows.
__device__ __forceinline__ void order_strip(T *strip, T *inverse, int n, int col, int cols, const int *chosen,
                                            const int *from, const int *to, int idx)
{
    T own = 0, other = 0;  // elements of the strip that move: of a pivot row, of a row that makes room for it
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

// Ends a panel: orders its pivots to the front and hands on their rows' elements in the other columns of OUTER.
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

// Eliminates a panel of up to COLS columns with one block, each thread holding HOLDS rows of it in registers.
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

        // The best of all and its row
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

// The same for one column of any length, which stays in device memory.
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
// A single block, so that a pivot costs a barrier instead of a launch. The other multiprocessors wait for it.
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

#ifndef SPREAD_ROWS
#define SPREAD_ROWS 16  // rows of a block of solve_spread
#endif
#define SPREAD (SPREAD_ROWS * WIDEST)  // threads of a block

// Applies a panel to the other columns of its OUTER columns and lays the next panel's columns into the strip.
// Blocks take SPREAD_ROWS rows each as they come; a row's place says what it is:
//
//     place < col          a pivot of an earlier panel. No thread of solve_panel held it, so the strip still has
//                          A[i, J], and the factors are computed here: G = -A[i, J] inverse
//     col <= place         a pivot of this panel: the strip has its G, and A[P, K] = G A[P, K]
//       < col + cols
//     place >= col + cols  a row that is left: the strip has its G, and A[i, K] += G A[P, K]
//
// The launch before the first panel of OUTER columns has cols = 0: it only lays out the strip.
//
// ALL rows, or only those from place `outer` on, as the list `pivot` has them.
template <bool ALL>
__device__ __forceinline__ void spread(T *ab, T *strip, const T *upper, const T *inverse, const int *place,
                                       const int *pivot, int n, int pitch, int col, int cols, int outer,
                                       int outer_cols, int next_cols)
{
    __shared__ T tile[WIDEST][OUTER];
    __shared__ T inner[WIDEST][WIDEST];
    __shared__ T factors[WIDEST][SPREAD_ROWS + 1];
    __shared__ T next[WIDEST][SPREAD_ROWS + 1];
    __shared__ int at[SPREAD_ROWS];   // the rows' places
    __shared__ int row[SPREAD_ROWS];  // and their numbers

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

    // G: what the strip has, but for the pivots of earlier panels
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

    // The OUTER columns: G in the panel's own, sums in the others
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

extern "C" __global__ void __launch_bounds__(SPREAD)
solve_spread(T *ab, T *strip, const T *upper, const T *inverse, const int *place, int n, int pitch, int col, int cols,
             int outer, int outer_cols, int next_cols)
{
    spread<true>(ab, strip, upper, inverse, place, nullptr, n, pitch, col, cols, outer, outer_cols, next_cols);
}

// Copies the pivot rows of OUTER columns aside, from the first column behind them on: solve_update changes them.
extern "C" __global__ void solve_lift(const T *ab, const int *pivot, T *lifted, int pitch, int outer, int first)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    const T *from = ab + (size_t)pivot[outer + blockIdx.y] * pitch;
    for (size_t c = (size_t)first + blockIdx.x * BLOCK + idx; c < pitch; c += (size_t)gridDim.x * BLOCK)
        lifted[(size_t)blockIdx.y * pitch + c] = from[c];
}

// The update is a matrix product like matmul's warp-tile: 4 x 8 lanes with SUMS_Y x SUMS_X sums each, 64 x 64 (float64:
// 32 x 64) elements to a warp. With 8 warps, 4 by 2, a block has a tile of 256 x 128 floats. One step takes 16 pivot
// rows, for which 16 x (256 + 4 + 128) floats, 24.25 KiB, come to shared memory; 4 of 260 are padding.
#ifndef SUMS_Y
#define SUMS_Y (64 / (int)sizeof(T))  // rows that a thread sums up
#endif
#ifndef SUMS_X
#define SUMS_X 8  // columns that a thread sums up
#endif
#ifndef STEP
#define STEP 16  // pivot rows in the tiles of one step
#endif
#ifndef STAGES
#define STAGES 3  // steps whose tiles are in shared memory or on the way
#endif
#define WARPS (BLOCK / 32)
#define WARPS_X (WARPS % 2 == 0 ? 2 : 1)
#define WARPS_Y (WARPS / WARPS_X > 0 ? WARPS / WARPS_X : 1)
#define TILE_Y (WARPS_Y * 4 * SUMS_Y)
#define TILE_X (WARPS_X * 8 * SUMS_X)
#define STAGE (STEP * (TILE_Y + 4 + TILE_X))  // elements of the tiles of one step

// Copies BYTES (4, 8 or 16) from device to shared memory with no register on the way; zeros where !inside.
template <int BYTES>
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside)
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"((unsigned)__cvta_generic_to_shared(to)),
                 "l"(from), "n"(BYTES), "r"(inside ? BYTES : 0)
                 : "memory");
#else
#pragma unroll
    for (int i = 0; i < BYTES / 4; i++)
        ((unsigned *)to)[i] = inside ? ((const unsigned *)from)[i] : 0;
#endif
}

__device__ __forceinline__ void commit_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LEFT>
__device__ __forceinline__ void wait_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}

// Changes the columns behind OUTER eliminated ones: a matrix product, added to what is there. ALL rows, or only those
// from place `outer` on, as the list `pivot` has them.
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
    // Neighbouring lanes share their columns, lanes two apart their rows: so a half warp's 16-byte loads merge.
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
            copy_async<sizeof(T)>(&tile_g[stage][t][y], ab + row_of(y) * pitch + outer + t0 + t,
                                  row0 + y < n && t0 + t < outer_cols);
        }
#pragma unroll
        for (unsigned i = idx; i < STEP * TILE_X / VEC; i += BLOCK) {
            unsigned t = i / (TILE_X / VEC), x = i % (TILE_X / VEC) * VEC;
            copy_async<16>(&tile_u[stage][t][x], lifted + (size_t)(t0 + t) * pitch + col0 + x,
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

// Changes all columns behind OUTER eliminated ones at once.
// The matrix passes through the chip once for OUTER columns instead of once for each, and the multiply-adds of a
// thread's 16 x 8 elements are the limit. The panels remain: their steps follow each other on one multiprocessor.
extern "C" __global__ void __launch_bounds__(BLOCK)
solve_update(T *__restrict__ ab, const T *__restrict__ lifted, const int *__restrict__ place, int n, int pitch,
             int outer, int outer_cols)
{
    update<true>(ab, lifted, place, nullptr, n, pitch, outer, outer_cols);
}

// Reads x off the matrix that the panels leave: the pivots are scaled to 1 already.
extern "C" __global__ void solve_collect(const T *ab, const int *pivot, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t j = blockIdx.x * BLOCK + idx; j < n; j += (size_t)gridDim.x * BLOCK)
        x[j] = ab[(size_t)pivot[j] * pitch + n];
}

// The next rung leaves a row alone once the OUTER columns of which it is a pivot are done. Behind them it keeps its
// coefficients: A becomes a triangle of blocks, as in an LU decomposition, and x is found from its last elements up.
// With one column for OUTER ones:
//
//     row p    2  1  |  4              1 0.5 |  2              1 0.5 |  2          x1 = 2 - 0.5 * 2 = 1
//     row q    1  1  |  3    becomes   0 0.5 |  1    becomes   0   1 |  2          x2 = 2
//
// Gauss-Jordan also subtracts row q from row p, to have x at once: n^3 operations for all columns, here 2/3 n^3.
// `pivot` lists the rows in the order of their use: from place `outer` on they are the pivots of these OUTER columns
// and the rows that are left.

// solve_spread for these rows.
extern "C" __global__ void __launch_bounds__(SPREAD)
solve_spread_left(T *ab, T *strip, const T *upper, const T *inverse, const int *pivot, int n, int pitch, int col,
                  int cols, int outer, int outer_cols, int next_cols)
{
    spread<false>(ab, strip, upper, inverse, nullptr, pivot, n, pitch, col, cols, outer, outer_cols, next_cols);
}

// Changes only the rows that are left, and finds x from its last elements up.
// The update does two thirds of the work, for launches of solve_back that read half of the matrix once: 41 instead of
// 51 ms for n = 8192 on an H200. The panels remain: the more rows are left, the narrower is a panel, and the more often
// are the OUTER columns read and written for its few.
extern "C" __global__ void __launch_bounds__(BLOCK)
solve_update_left(T *__restrict__ ab, const T *__restrict__ lifted, const int *__restrict__ pivot, int n, int pitch,
                  int outer, int outer_cols)
{
    update<false>(ab, lifted, nullptr, pivot, n, pitch, outer, outer_cols);
}

// Finds the elements of x that the pivots of OUTER columns stand for, a block each: those behind them are known.
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

// The last rung gives a panel to a cluster: CLUSTER blocks on as many multiprocessors, which write into each other's
// shared memory (compute capability 9.0). Their registers hold CLUSTER times as many elements: 8192 rows by 16 columns,
// where one block holds 4.
//
//     block 0   warps' best -> block's best --\                          /--> block 0   cluster's best, subtract
//     block 1   warps' best -> block's best ---> offers of all blocks ----> block 1   cluster's best, subtract
//     ...                                       in the memory of each
//
// A step has a barrier of the block and one of the cluster. The offers of successive columns take turns in two places.
#define CLUSTER 8                   // blocks of a cluster
#define MEMBERS (CLUSTER * PANEL)   // threads of a cluster
#ifndef ALONE
#define ALONE 4                     // rows a thread up to which a panel is one block's
#endif
#if __CUDA_ARCH__ >= 900
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

__device__ __forceinline__ unsigned cluster_rank()
{
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// Waits for all threads of the cluster, and makes what each has written visible to all.
__device__ __forceinline__ void cluster_barrier()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Returns where in the shared memory of block `rank` of the cluster is what `mine` is in this block's.
template <typename E>
__device__ __forceinline__ E *in_block(E *mine, unsigned rank)
{
    E *there = mine;
#if __CUDA_ARCH__ >= 900
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(mine), "r"(rank));
#endif
    return there;
}

// Eliminates a panel with a cluster, each thread holding HOLDS rows of it in registers.
template <int HOLDS, int COLS>
__device__ __forceinline__ void eliminate_in_cluster(const T *ab, T *strip, T *upper, T *inverse, int *place,
                                                     int *pivot, int n, int pitch, int col, int cols, int outer,
                                                     int outer_cols)
{
    const int warps = PANEL / 32, parts = 32 / CLUSTER;
    __shared__ Peak peaks[2][warps];                             // of the block's warps
    __shared__ __align__(16) T lines[2][warps][COLS];
    __shared__ Peak offers[2][CLUSTER];                          // of the cluster's blocks
    __shared__ __align__(16) T offered[2][CLUSTER][COLS];
    __shared__ int chosen[COLS];

    int idx = threadIdx.x, lane = idx % 32, warp = idx / 32, left = n - col;
    int rank = cluster_rank(), member = rank * PANEL + idx;
    T held[HOLDS][COLS];
    unsigned unused = load_rows<MEMBERS>(held, strip + col, n, left, cols, member);
    cluster_barrier();  // all blocks have begun
#pragma unroll 1
    for (int t = 0; t < cols; t++) {
        offer_row<MEMBERS>(peaks[t % 2][warp], lines[t % 2][warp], held, unused, member);
        __syncthreads();

        // The block's best and its row, which one warp writes into all blocks, 32 / CLUSTER lanes into each
        if (warp == 0) {
            Peak best = warp_peak(peaks[t % 2][lane % warps]);
            int to = lane / parts, part = lane % parts;
            if (best.size >= 0)
                for (int v = part; v < COLS / VEC; v += parts)
                    *(uint4 *)in_block(&offered[t % 2][rank][v * VEC], to) =
                        *(const uint4 *)&lines[t % 2][best.at % PANEL / 32][v * VEC];
            if (part == 0)
                *in_block(&offers[t % 2][rank], to) = best;
        }
        cluster_barrier();

        // The best of all and its row
        Peak best = warp_peak(offers[t % 2][lane % CLUSTER]);
        use_row<MEMBERS>(held, unused, offered[t % 2][best.at % MEMBERS / PANEL], best, member);
        if (idx == 0)
            chosen[t] = best.at;
    }
    for (int t = cols; t < COLS; t++)
        move_columns(held);
    store_rows<MEMBERS>(held, strip + col, n, left, cols, member);
    cluster_barrier();  // the strip is whole
    if (rank == 0)
        end_panel(ab, strip, upper, inverse, place, pivot, n, pitch, col, cols, outer, outer_cols, chosen);
}

// Eliminates a panel with the registers of a cluster of blocks, so that it is wide however many rows are left.
// Fewer panels are fewer passes over the OUTER columns, and fewer launches: 33 instead of 41 ms for n = 8192. But for
// the first, a panel that one block holds with up to ALONE rows a thread stays one block's: a barrier of the cluster
// takes longer than the block's. What remains: while a panel is eliminated the other multiprocessors wait.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(PANEL)
solve_panel_cluster(const T *ab, T *strip, T *upper, T *inverse, int *place, int *pivot, int n, int pitch, int col,
                    int cols, int outer, int outer_cols, int holds)
{
#define CLUSTER_OF(holds) \
    eliminate_in_cluster<holds, COLUMNS(holds)>(ab, strip, upper, inverse, place, pivot, n, pitch, col, cols, outer, \
                                                outer_cols)
    switch (holds) {
    case 1: CLUSTER_OF(1); break;
    case 2: CLUSTER_OF(2); break;
    case 4: CLUSTER_OF(4); break;
    case 8: CLUSTER_OF(8); break;
    default: CLUSTER_OF(16); break;
    }
}
