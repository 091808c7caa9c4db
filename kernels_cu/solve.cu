// Linear system: A x = b by Gauss-Jordan elimination with partial pivoting.
//
// a is n rows by n columns, row-major, b and x have n elements, all of type T. The elimination works on a copy ab, A
// with b as column n, whose rows start `pitch` elements apart. In step j the row with the largest element of column j
// becomes the pivot row, and a multiple of it is subtracted from every other row so that column j is 0 there: after n
// steps A is diagonal and x can be read off. That is n^3 operations (LU takes 2/3 n^3, which is what GFLOP/s counts),
// and 2 n^2 elements are read and written in each early step: the step that is written down is bound by memory.
// The difficulty is that steps follow each other: each needs the pivot that the one before leaves behind.
//
// A rung is several kernels, launched in order for each column or panel of columns; what they pass on stays on the GPU.
// Read the ladder from top to bottom. BDIMX and BDIMY are the threads of a block; x runs along a row.

#ifndef TYPE
#define TYPE float
#endif
#ifndef BDIMX
#define BDIMX 32
#endif
#ifndef BDIMY
#define BDIMY 8
#endif

#ifndef T  // T is #defined ahead of this text by the host; -DTYPE serves a plain nvcc
typedef TYPE T;
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
// Elements behind column n, where the pitch has room, become 0. pivot lists the rows in the order of their use.
extern "C" __global__ void solve_augment(const T *a, const T *b, T *ab, int *order, int *pivot, int n, int pitch)
{
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < n; row += (size_t)gridDim.y * BDIMY) {
        for (size_t c = (size_t)blockIdx.x * BDIMX + threadIdx.x; c < pitch; c += (size_t)gridDim.x * BDIMX)
            ab[row * pitch + c] = c < n ? a[row * n + c] : c == n ? b[row] : (T)0;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            order[row] = -1;
            pivot[row] = row;
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
// Column j itself is not read again and stays as it is. Rows are n + 1 elements long, so that most of them start
// amid a 32-byte sector: a warp's 32 elements lie in five sectors of two cache lines instead of four of one.
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

// Takes one launch a column: the blocks find the pivot of the next column while they have it in hand.
// Every block picks the pivot from the candidates that the launch before left; no row is moved, `order` remembers
// which are used. What remains: the whole matrix passes through the chip for two operations an element and column.
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
    size_t first = (size_t)(col + 1) / LINE * LINE;
    Peak next = {-1, 0};
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < n; row += (size_t)gridDim.y * BDIMY) {
        T *lower = ab + row * pitch;
        if (row != chosen) {
            T factor = lower[col] / upper[col];
            for (size_t c = first + blockIdx.x * BDIMX + threadIdx.x; c <= n; c += (size_t)gridDim.x * BDIMX)
                if (c > col) {
                    T element = lower[c] - factor * upper[c];
                    lower[c] = element;
                    if (c == col + 1 && order[row] < 0)
                        next = larger(next, {fabs(element), (int)row});
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

// The last rung takes OUTER columns at a time, and within them narrow panels, as wide as the registers of one block
// hold. Eliminating a panel of columns J with the pivot rows P turns it, in place, into factors
//     G = -A[i, J] inverse(A[P, J]) for the other rows i, and inverse(A[P, J]) in the rows P;
// all further columns K then change at once, A[i, K] += G A[P, K], with A[P, K] = G A[P, K] in the rows P themselves.
#define PANEL 512                            // threads of the block that eliminates a panel
#define HELD (256 / (int)sizeof(T))          // elements of the panel that each holds in registers
#define WIDEST 16                            // columns of a panel at most
#define OUTER 64
#define COLUMNS(rows) (HELD / (rows) < WIDEST ? HELD / (rows) : WIDEST)  // that fit with so many rows a thread

__device__ __forceinline__ Peak warp_peak(Peak p)
{
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        Peak q = {__shfl_xor_sync(~0u, p.size, distance), __shfl_xor_sync(~0u, p.at, distance)};
        p = larger(p, q);
    }
    return p;
}

// Ends a panel whose pivots are at `chosen` in the list of unused rows: hands on the pivot rows' elements in the other
// columns of OUTER and the inverse, and puts the pivots in front of the list.
__device__ __forceinline__ void end_panel(const T *ab, T *upper, T *inverse, int *order, int *pivot, int pitch, int col,
                                          int cols, int outer, int outer_cols, const int *chosen)
{
    __shared__ int rows[WIDEST], holes[WIDEST];

    int idx = threadIdx.x;
    __syncthreads();
    if (idx < cols)
        rows[idx] = pivot[col + chosen[idx]];
    __syncthreads();
    for (int i = idx; i < cols * outer_cols; i += PANEL) {
        int c = outer + i % outer_cols;
        if (c < col || c >= col + cols)
            upper[i] = ab[(size_t)rows[i / outer_cols] * pitch + c];
    }
    for (int i = idx; i < cols * cols; i += PANEL)
        inverse[i] = ab[(size_t)rows[i / cols] * pitch + col + i % cols];
    if (idx < 32) {
        bool panel = idx < cols, displaced = panel;
        int row = panel ? pivot[col + idx] : 0;
        for (int t = 0; t < cols; t++)
            displaced = displaced && chosen[t] != idx;
        unsigned below = (1u << idx) - 1;
        unsigned from = __ballot_sync(~0u, displaced), to = __ballot_sync(~0u, panel && chosen[idx] >= cols);
        if (panel && chosen[idx] >= cols)
            holes[__popc(to & below)] = chosen[idx];
        __syncwarp();
        if (displaced)
            pivot[col + holes[__popc(from & below)]] = row;
        if (panel) {
            pivot[col + idx] = rows[idx];
            order[rows[idx]] = col + idx;
        }
    }
}

// Eliminates a panel of up to COLS columns with one block, each thread holding ROWS rows of it in registers.
// Every warp offers its candidate together with the whole row, so that a column takes one barrier.
template <int ROWS, int COLS>
__device__ __forceinline__ void eliminate_panel(T *ab, T *upper, T *inverse, int *order, int *pivot, int n, int pitch,
                                                int col, int cols, int outer, int outer_cols)
{
    const int warps = PANEL / 32;
    __shared__ Peak peaks[2][warps];
    __shared__ T lines[2][warps][COLS];
    __shared__ int chosen[COLS];

    int idx = threadIdx.x, lane = idx % 32, warp = idx / 32, left = n - col;
    T held[ROWS][COLS];
    unsigned unused = 0;
#pragma unroll
    for (int r = 0; r < ROWS; r++) {
        bool inside = idx + r * PANEL < left;
        const T *from = ab + (inside ? (size_t)pivot[col + idx + r * PANEL] * pitch + col : 0);
        unused |= inside ? 1u << r : 0;
#pragma unroll
        for (int c = 0; c < COLS; c++)
            held[r][c] = inside && c < cols ? from[c] : (T)0;
    }
#pragma unroll
    for (int t = 0; t < COLS; t++)
        if (t < cols) {
            Peak mine = {-1, left};
#pragma unroll
            for (int r = 0; r < ROWS; r++)
                if (unused >> r & 1)
                    mine = larger(mine, {fabs(held[r][t]), idx + r * PANEL});
            Peak best = warp_peak(mine);
            if (best.at == mine.at && best.at < left)
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    if (best.at == idx + r * PANEL)
#pragma unroll
                        for (int c = 0; c < COLS; c++)
                            lines[t % 2][warp][c] = held[r][c];
            if (lane == 0)
                peaks[t % 2][warp] = best;
            __syncthreads();
            best = warp_peak(peaks[t % 2][lane % warps]);
            best.at = min(best.at, left - 1);  // with NaN there is no largest
            const T *line = lines[t % 2][best.at % PANEL / 32];
            T scale = 1 / line[t];
#pragma unroll
            for (int r = 0; r < ROWS; r++) {
                T factor = held[r][t] * scale;
                held[r][t] = 0;
#pragma unroll
                for (int c = 0; c < COLS; c++)
                    if (c != t)
                        held[r][c] -= factor * line[c];
                held[r][t] = -factor;
            }
            if (best.at % PANEL == idx) {
#pragma unroll
                for (int r = 0; r < ROWS; r++)
                    if (best.at == idx + r * PANEL) {
                        unused &= ~(1u << r);
#pragma unroll
                        for (int c = 0; c < COLS; c++)
                            held[r][c] = c == t ? scale : line[c] * scale;
                    }
            }
            if (idx == 0)
                chosen[t] = best.at;
        }
#pragma unroll
    for (int r = 0; r < ROWS; r++)
        if (idx + r * PANEL < left) {
            T *to = ab + (size_t)pivot[col + idx + r * PANEL] * pitch + col;
#pragma unroll
            for (int c = 0; c < COLS; c++)
                if (c < cols)
                    to[c] = held[r][c];
        }
    end_panel(ab, upper, inverse, order, pivot, pitch, col, cols, outer, outer_cols, chosen);
}

// The same for one column of any length, which stays in device memory.
__device__ __forceinline__ void eliminate_column(T *ab, T *upper, T *inverse, int *order, int *pivot, int n, int pitch,
                                                 int col, int outer, int outer_cols)
{
    __shared__ Peak peaks[PANEL / 32];
    __shared__ int chosen[1];

    int idx = threadIdx.x, left = n - col;
    Peak best = {-1, 0};
    for (int i = idx; i < left; i += PANEL)
        best = larger(best, {fabs(ab[(size_t)pivot[col + i] * pitch + col]), i});
    best = warp_peak(best);
    if (idx % 32 == 0)
        peaks[idx / 32] = best;
    __syncthreads();
    best = warp_peak(peaks[idx % (PANEL / 32)]);
    T scale = 1 / ab[(size_t)pivot[col + best.at] * pitch + col];
    __syncthreads();
    for (int i = idx; i < left; i += PANEL) {
        T *element = ab + (size_t)pivot[col + i] * pitch + col;
        *element = i == best.at ? scale : -*element * scale;
    }
    if (idx == 0)
        chosen[0] = best.at;
    end_panel(ab, upper, inverse, order, pivot, pitch, col, 1, outer, outer_cols, chosen);
}

// Eliminates a panel, with `rows` rows in each thread's registers: the fewer rows are left, the wider is the panel.
// A single block, so that a pivot costs a barrier instead of a launch. The other multiprocessors wait for it.
extern "C" __global__ void __launch_bounds__(PANEL)
solve_panel(T *ab, T *upper, T *inverse, int *order, int *pivot, int n, int pitch, int col, int cols, int outer,
            int outer_cols, int rows)
{
    switch (rows) {
    case 2: eliminate_panel<2, COLUMNS(2)>(ab, upper, inverse, order, pivot, n, pitch, col, cols, outer, outer_cols); break;
    case 4: eliminate_panel<4, COLUMNS(4)>(ab, upper, inverse, order, pivot, n, pitch, col, cols, outer, outer_cols); break;
    case 8: eliminate_panel<8, COLUMNS(8)>(ab, upper, inverse, order, pivot, n, pitch, col, cols, outer, outer_cols); break;
    case 16: eliminate_panel<16, COLUMNS(16)>(ab, upper, inverse, order, pivot, n, pitch, col, cols, outer, outer_cols); break;
    default: eliminate_column(ab, upper, inverse, order, pivot, n, pitch, col, outer, outer_cols);
    }
}

#define SPREAD_ROWS 16

// Applies a panel to the other columns of its OUTER columns, and completes it in the rows that were used before.
// Blocks take SPREAD_ROWS rows each; the factors of a row and the pivot rows' elements come from shared memory.
extern "C" __global__ void __launch_bounds__(256)
solve_spread(T *ab, const T *upper, const T *inverse, const int *order, int n, int pitch, int col, int cols, int outer,
             int outer_cols)
{
    __shared__ T tile[WIDEST][OUTER];
    __shared__ T inner[WIDEST][WIDEST + 1];
    __shared__ T factors[SPREAD_ROWS][WIDEST + 1];
    __shared__ int used[SPREAD_ROWS];

    unsigned idx = threadIdx.x;
    size_t row0 = (size_t)blockIdx.x * SPREAD_ROWS;

    for (unsigned i = idx; i < cols * outer_cols; i += 256)
        if (outer + i % outer_cols < col || outer + i % outer_cols >= col + cols)
            tile[i / outer_cols][i % outer_cols] = upper[i];
    for (unsigned i = idx; i < cols * cols; i += 256)
        inner[i / cols][i % cols] = inverse[i];
    for (unsigned i = idx; i < SPREAD_ROWS * cols; i += 256)
        factors[i / cols][i % cols] = row0 + i / cols < n ? ab[(row0 + i / cols) * pitch + col + i % cols] : (T)0;
    if (idx < SPREAD_ROWS)
        used[idx] = row0 + idx < n ? order[row0 + idx] : -1;
    __syncthreads();

    T own[SPREAD_ROWS * WIDEST / 256];
#pragma unroll
    for (int e = 0; e < SPREAD_ROWS * WIDEST / 256; e++) {
        unsigned r = (idx + e * 256) / WIDEST, c = (idx + e * 256) % WIDEST;
        own[e] = 0;
        if (used[r] >= 0 && used[r] < col && c < cols)
            for (int t = 0; t < cols; t++)
                own[e] -= factors[r][t] * inner[t][c];
    }
    __syncthreads();
#pragma unroll
    for (int e = 0; e < SPREAD_ROWS * WIDEST / 256; e++) {
        unsigned r = (idx + e * 256) / WIDEST, c = (idx + e * 256) % WIDEST;
        if (used[r] >= 0 && used[r] < col && c < cols) {
            factors[r][c] = own[e];
            ab[(row0 + r) * pitch + col + c] = own[e];
        }
    }
    __syncthreads();
    for (unsigned i = idx; i < SPREAD_ROWS * outer_cols; i += 256) {
        unsigned r = i / outer_cols, c = i % outer_cols;
        if (row0 + r < n && (outer + c < col || outer + c >= col + cols)) {
            T *element = ab + (row0 + r) * pitch + outer + c;
            T sum = used[r] >= col ? (T)0 : *element;
            for (int t = 0; t < cols; t++)
                sum += factors[r][t] * tile[t][c];
            *element = sum;
        }
    }
}

// Copies the pivot rows of OUTER columns aside, from the first column behind them on: solve_update changes them.
extern "C" __global__ void solve_lift(const T *ab, const int *pivot, T *lifted, int pitch, int outer, int first)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    const T *from = ab + (size_t)pivot[outer + blockIdx.y] * pitch;
    for (size_t c = (size_t)first + blockIdx.x * BLOCK + idx; c < pitch; c += (size_t)gridDim.x * BLOCK)
        lifted[(size_t)blockIdx.y * pitch + c] = from[c];
}

#define VEC (16 / (int)sizeof(T))  // elements in 16 bytes
#define SUMS 8                     // rows and columns that a thread sums up
#define STEP 16                    // pivot rows in the tiles of one step
// A block whose tiles exceed 48 KiB is refused before the launch; for the other kernels the text still compiles.
#define FIT (STEP * (BDIMY * SUMS + VEC + BDIMX * SUMS) * (int)sizeof(T) <= 48 * 1024)
#define TILE_Y (FIT ? BDIMY * SUMS : SUMS)
#define TILE_X (FIT ? BDIMX * SUMS : SUMS)

union Vector { uint4 all; T at[VEC]; };

// Changes all columns behind OUTER eliminated ones at once: a matrix product, added to what is there.
// The matrix passes through the chip once for OUTER columns instead of once for each, and 8 x 8 elements a thread
// keep the multiply-adds busy. The panels remain: their steps follow each other on one multiprocessor.
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCK <= 256 && sizeof(T) == 4 ? 2 : 1)
solve_update(T *__restrict__ ab, const T *__restrict__ lifted, const int *__restrict__ order, int n, int pitch,
             int outer, int outer_cols)
{
    __shared__ __align__(16) T tile_g[STEP][TILE_Y + VEC];
    __shared__ __align__(16) T tile_u[STEP][TILE_X];

    unsigned tx = threadIdx.x, ty = threadIdx.y, idx = ty * BDIMX + tx;
    size_t first = outer + outer_cols, row0 = (size_t)blockIdx.y * TILE_Y;
    size_t col0 = first / VEC * VEC + (size_t)blockIdx.x * TILE_X;

    T sum[SUMS][SUMS] = {};
    for (int t0 = 0; t0 < outer_cols; t0 += STEP) {
#pragma unroll
        for (unsigned i = idx; i < TILE_Y * STEP; i += BLOCK) {
            unsigned y = i / STEP, t = i % STEP;
            tile_g[t][y] = row0 + y < n && t0 + t < outer_cols ? ab[(row0 + y) * pitch + outer + t0 + t] : (T)0;
        }
#pragma unroll
        for (unsigned i = idx; i < STEP * TILE_X / VEC; i += BLOCK) {
            unsigned t = i / (TILE_X / VEC), x = i % (TILE_X / VEC) * VEC;
            Vector v = {};
            if (t0 + t < outer_cols && col0 + x < pitch)
                v.all = *(const uint4 *)&lifted[(size_t)(t0 + t) * pitch + col0 + x];
            *(uint4 *)&tile_u[t][x] = v.all;
        }
        __syncthreads();
#pragma unroll
        for (int t = 0; t < STEP; t++) {
            Vector g[SUMS / VEC], u[SUMS / VEC];
#pragma unroll
            for (int r = 0; r < SUMS / VEC; r++)
                g[r].all = *(const uint4 *)&tile_g[t][(ty + r * BDIMY) * VEC];
#pragma unroll
            for (int s = 0; s < SUMS / VEC; s++)
                u[s].all = *(const uint4 *)&tile_u[t][(tx + s * BDIMX) * VEC];
#pragma unroll
            for (int r = 0; r < SUMS; r++)
#pragma unroll
                for (int s = 0; s < SUMS; s++)
                    sum[r][s] += g[r / VEC].at[r % VEC] * u[s / VEC].at[s % VEC];
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < SUMS; r++) {
        size_t row = row0 + (ty + r / VEC * BDIMY) * VEC + r % VEC;
        if (row < n) {
            bool pivot = order[row] >= outer;
#pragma unroll
            for (int s = 0; s < SUMS; s += VEC) {
                size_t c = col0 + (tx + s / VEC * BDIMX) * VEC;
                if (c < pitch) {
                    Vector v;
                    v.all = *(const uint4 *)&ab[row * pitch + c];
#pragma unroll
                    for (int e = 0; e < VEC; e++)
                        v.at[e] = (pivot ? (T)0 : v.at[e]) + sum[r][s + e];
                    *(uint4 *)&ab[row * pitch + c] = v.all;
                }
            }
        }
    }
}

// Reads x off the matrix that the panels leave: the pivots are scaled to 1 already.
extern "C" __global__ void solve_collect(const T *ab, const int *pivot, T *x, int n, int pitch)
{
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    for (size_t j = blockIdx.x * BLOCK + idx; j < n; j += (size_t)gridDim.x * BLOCK)
        x[j] = ab[(size_t)pivot[j] * pitch + n];
}
