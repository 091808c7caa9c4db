// Matrix times vector: y[r] = sum over c of A[r][c] * x[c].
//
// A has `rows` rows of `cols` elements of type T, row-major; rows start `pitch` elements apart, cols rounded up to a
// multiple of 16 bytes, so that each row starts aligned. The elements between cols and pitch must not be used.
// A is read once, x once if it stays in a cache, y is written once: (rows * cols + rows + cols) * sizeof(T) bytes for
// 2 * rows * cols operations. Each row is a reduction; the ladder is about who adds up a row: too few threads leave
// the memory idle, too many spend their time on adding each other's sums. Which is which depends on cols.
//
// BDIMX is the number of threads of a block.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 256
#endif

#define WARP 32
#define WARPS (BDIMX / WARP)       // whole warps of a block; rungs that work by warps leave the rest idle
#define VEC (16 / (int)sizeof(T))  // elements in 16 bytes
#ifndef ROWS
#define ROWS 4  // rows that the last kernels process at once
#endif

// Gives each thread a row, which it walks along.
// What remains: the 32 threads of a warp are pitch elements apart, so that each load touches up to 32 sectors and uses
// one element of each. The cache keeps the other elements for the next steps only if it is large enough: short rows of
// a sector or two are read once, long rows many times.
extern "C" __global__ void matvec_naive(const T *A, const T *x, T *y, int rows, int cols, int pitch)
{
    unsigned r = blockIdx.x * BDIMX + threadIdx.x;

    if (r < rows) {
        T sum = 0;
        for (int c = 0; c < cols; c++)
            sum += A[(size_t)r * pitch + c] * x[c];
        y[r] = sum;
    }
}

// Adds the block's sums as a tree in shared memory; thread 0 returns the total.
__device__ __forceinline__ T tree_sum(T sum)
{
    __shared__ T part[BDIMX];

    unsigned half = 1;
    while (half < BDIMX)
        half *= 2;
    part[threadIdx.x] = sum;
    __syncthreads();
    for (half /= 2; half > 0; half /= 2) {
        if (threadIdx.x < half && threadIdx.x + half < BDIMX)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

// Gives each row a block: neighbouring threads read neighbouring elements, and a tree in shared memory adds their sums.
// Every sector is used whole. What remains: the tree has a barrier in each step, which short rows spend more time on
// than on their elements, and threads beyond the end of a short row do nothing.
extern "C" __global__ void matvec_block(const T *A, const T *x, T *y, int rows, int cols, int pitch)
{
    unsigned r = blockIdx.x;

    T sum = 0;
    for (int c = threadIdx.x; c < cols; c += BDIMX)
        sum += A[(size_t)r * pitch + c] * x[c];
    sum = tree_sum(sum);
    if (threadIdx.x == 0)
        y[r] = sum;
}

// Adds the sums of `lanes` neighbouring lanes, a power of two; the first of them returns the total.
__device__ __forceinline__ T lane_sum(T sum, unsigned lanes)
{
    for (unsigned half = lanes / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xFFFFFFFF, sum, half);
    return sum;
}

// Gives each row a warp, whose lanes add their sums by shuffles: no shared memory and no barrier.
// Rows no longer wait for each other, and 32 columns keep a warp busy where a block needs BDIMX. What remains: each
// load moves sizeof(T) bytes, and rows shorter than 32 columns leave lanes idle.
extern "C" __global__ void matvec_warp(const T *A, const T *x, T *y, int rows, int cols, int pitch)
{
    unsigned r = blockIdx.x * WARPS + threadIdx.x / WARP;
    unsigned lane = threadIdx.x % WARP;

    if (threadIdx.x / WARP < WARPS && r < rows) {
        T sum = 0;
        for (int c = lane; c < cols; c += WARP)
            sum += A[(size_t)r * pitch + c] * x[c];
        sum = lane_sum(sum, WARP);
        if (lane == 0)
            y[r] = sum;
    }
}

union Vector { uint4 all; T at[VEC]; };  // 16 bytes

// Adds up columns begin to end of ROWS rows, `step` apart; this is thread `lane` of `lanes`. Instead of rows beyond the
// end of A it reads the last row again, so that loads need no branch. `begin` is a multiple of VEC.
__device__ __forceinline__ void add_rows(T sum[ROWS], const T *A, const T *x, unsigned first, unsigned step, int rows,
                                         int pitch, unsigned begin, unsigned end, unsigned lane, unsigned lanes)
{
    const unsigned whole = end - end % VEC;
    const T *row[ROWS];
#pragma unroll
    for (int j = 0; j < ROWS; j++) {
        row[j] = A + (size_t)min(first + j * step, rows - 1) * pitch;
        sum[j] = 0;
    }
    for (unsigned c = begin + lane * VEC; c < whole; c += lanes * VEC) {
        Vector v = {*(const uint4 *)(x + c)}, a[ROWS];
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            a[j].all = *(const uint4 *)(row[j] + c);
#pragma unroll
        for (int j = 0; j < ROWS; j++)
#pragma unroll
            for (int k = 0; k < VEC; k++)
                sum[j] += a[j].at[k] * v.at[k];
    }
    for (unsigned c = whole + lane; c < end; c += lanes)
#pragma unroll
        for (int j = 0; j < ROWS; j++)
            sum[j] += row[j][c] * x[c];
}

// Loads 16 bytes an access, and takes four rows to a warp.
// Four loads of A are under way in each thread, and what was read of x serves four rows. What remains: a matrix of
// few rows has too few warps to keep the memory busy, however long the rows are.
extern "C" __global__ void matvec_vector(const T *A, const T *x, T *y, int rows, int cols, int pitch)
{
    unsigned first = (blockIdx.x * WARPS + threadIdx.x / WARP) * ROWS;
    unsigned lane = threadIdx.x % WARP;

    if (threadIdx.x / WARP < WARPS) {
        T sum[ROWS];
        add_rows(sum, A, x, first, 1, rows, pitch, 0, cols, lane, WARP);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            T total = lane_sum(sum[j], WARP);
            if (lane == 0 && first + j < rows)
                y[first + j] = total;
        }
    }
}

// Cuts four rows into pieces of `piece` columns, gives each piece a block, and adds the pieces in a second launch.
// So a few long rows fill the GPU as well as many. Where there are rows enough the host makes one piece of them and
// leaves the second launch out: partial is then y. What remains: threads beyond the end of a short row are idle.
extern "C" __global__ void matvec_split(const T *A, const T *x, T *partial, int rows, int cols, int pitch,
                                        int pieces, int piece)
{
    __shared__ T part[ROWS][WARP];

    unsigned groups = (rows + ROWS - 1) / ROWS;
    unsigned first = blockIdx.x % groups * ROWS, at = blockIdx.x / groups;  // blocks that run together share x
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    unsigned begin = at * piece, end = min(begin + piece, cols);

    if (at >= pieces)
        return;
    if (warp < WARPS) {
        T sum[ROWS];
        add_rows(sum, A, x, first, 1, rows, pitch, begin, end, threadIdx.x, WARPS * WARP);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            T total = lane_sum(sum[j], WARP);
            if (lane == 0)
                part[j][warp] = total;
        }
    }
    __syncthreads();
    if (threadIdx.x < ROWS && first + threadIdx.x < rows) {
        T total = 0;
        for (int w = 0; w < WARPS; w++)
            total += part[threadIdx.x][w];
        partial[(size_t)(first + threadIdx.x) * pieces + at] = total;
    }
}

// Second pass of split: a warp adds the pieces of a row.
extern "C" __global__ void matvec_join(const T *partial, T *y, int rows, int pieces)
{
    unsigned r = blockIdx.x * WARPS + threadIdx.x / WARP;
    unsigned lane = threadIdx.x % WARP;

    if (threadIdx.x / WARP < WARPS && r < rows) {
        T sum = 0;
#pragma unroll 4
        for (unsigned i = lane; i < pieces; i += WARP)
            sum += partial[(size_t)r * pieces + i];
        sum = lane_sum(sum, WARP);
        if (lane == 0)
            y[r] = sum;
    }
}

// Gives each row only as many lanes as it has vectors, a power of two up to a warp: several rows a warp.
// A warp's load stays 512 bytes wide over neighbouring rows, and no lane is idle. The sums of few lanes take few
// shuffles. What remains is the memory; where cols is not a multiple of VEC, also what lies between the rows.
extern "C" __global__ void matvec_short(const T *A, const T *x, T *y, int rows, int cols, int pitch, int lanes)
{
    unsigned groups = WARP / lanes;  // rows side by side in a warp
    unsigned first = (blockIdx.x * WARPS + threadIdx.x / WARP) * groups * ROWS + threadIdx.x % WARP / lanes;
    unsigned lane = threadIdx.x % lanes;

    if (threadIdx.x / WARP < WARPS) {
        T sum[ROWS];
        add_rows(sum, A, x, first, groups, rows, pitch, 0, cols, lane, lanes);
#pragma unroll
        for (int j = 0; j < ROWS; j++) {
            T total = lane_sum(sum[j], lanes);
            if (lane == 0 && first + j * groups < rows)
                y[first + j * groups] = total;
        }
    }
}

// Gives a lane as many rows as a row has lanes, and halves them with the number of lanes that share a sum:
//
//     rows of 4 lanes       lane 0    lane 1    lane 2    lane 3
//     sums of 4 rows        0 1 2 3   0 1 2 3   0 1 2 3   0 1 2 3
//     after one exchange    0 1       0 1       2 3       2 3        each lane adds what lane ^ 2 had of its rows
//     after two             0         1         2         3
//
// A lane has given away all rows but one, with 3 shuffles instead of 8, and ROWS loads are under way in it meanwhile.
// A warp's 32 results are neighbours and leave in one store of whole sectors. What remains is the memory.
extern "C" __global__ void matvec_fold(const T *A, const T *x, T *y, int rows, int cols, int pitch)
{
    const unsigned groups = WARP / ROWS;  // rows side by side in a warp
    unsigned lane = threadIdx.x % ROWS;
    unsigned first = (blockIdx.x * WARPS + threadIdx.x / WARP) * WARP + threadIdx.x % WARP / ROWS;

    if (threadIdx.x / WARP < WARPS) {
        T sum[ROWS];
        add_rows(sum, A, x, first, groups, rows, pitch, 0, cols, lane, ROWS);
#pragma unroll
        for (unsigned half = ROWS / 2; half > 0; half /= 2)
#pragma unroll
            for (unsigned j = 0; j < ROWS / 2; j++)
                if (j < half) {
                    T kept = lane & half ? sum[j + half] : sum[j];
                    T given = lane & half ? sum[j] : sum[j + half];
                    sum[j] = kept + __shfl_xor_sync(0xFFFFFFFF, given, half);
                }
        if (first + lane * groups < rows)
            y[first + lane * groups] = sum[0];
    }
}
