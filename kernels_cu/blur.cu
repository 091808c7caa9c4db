// Box blur: out = mean of the (2 RADIUS + 1)^2 neighbours of an element that lie inside the picture. With a radius of
// 1, a corner has 4 of 9, an edge 6.
//
// A picture has `height` rows of `width` pixels; a pixel has CHANNELS values (red, green, blue side by side) of type T.
// A row has nx = width * CHANNELS elements; the right neighbour of an element is CHANNELS elements further on. Each
// element is read and written once, 2 * width * height * CHANNELS * sizeof(T) bytes, but needed (2 RADIUS + 1)^2 times.
// The kernels differ in where they keep elements until the next use (cache, shared memory, registers), and in whether
// they add along rows, then along columns, or all neighbours at once. The ladder continues in blur_strips.cu.
//
// Sums are of type S: float for float; whole numbers for unsigned char, whose mean is rounded to the nearest one.

#include "picture.cuh"

// Gives each thread one element; the thread reads the neighbours one by one and tests whether each is inside.
// The lanes of a warp have most neighbours in common, so most loads hit the cache. What remains: K * K loads and as
// many tests for one result.
extern "C" __global__ void blur_naive(const T *in, T *out, int width, int height)
{
    int nx = width * CHANNELS;
    int x = blockIdx.x * BDIMX + threadIdx.x;
    int y = blockIdx.y * BDIMY + threadIdx.y;

    if (x < nx && y < height)
        out[(size_t)y * nx + x] = mean_around(in, nx, height, x, y);
}

#define TILE_X (BDIMX + 2 * REACH)
#define TILE_Y (BDIMY + 2 * RADIUS)

// Fills the tile with the block's elements and the halo around them; with zeros outside the picture.
__device__ __forceinline__ void read_tile(T *tile, const T *in, int nx, int ny)
{
    int x0 = blockIdx.x * BDIMX - REACH, y0 = blockIdx.y * BDIMY - RADIUS;

    for (int i = threadIdx.y * BDIMX + threadIdx.x; i < TILE_X * TILE_Y; i += BLOCK) {
        int x = x0 + i % TILE_X, y = y0 + i / TILE_X;
        tile[i] = x >= 0 && x < nx && y >= 0 && y < ny ? in[(size_t)y * nx + x] : (T)0;
    }
}

// Reads the block's elements and a halo of RADIUS around them into shared memory first.
// A block reads each element from global memory once instead of K * K times, and zeros in the halo make tests needless.
// If the cache is as fast, as on an H200, nothing is gained for a small radius. What remains: one more barrier, the
// halo, and K * K loads for one result.
extern "C" __global__ void blur_smem(const T *in, T *out, int width, int height)
{
    extern __shared__ uint4 memory[];
    T *tile = (T *)memory;

    int nx = width * CHANNELS;
    int x = blockIdx.x * BDIMX + threadIdx.x;
    int y = blockIdx.y * BDIMY + threadIdx.y;

    read_tile(tile, in, nx, height);
    __syncthreads();
    if (x < nx && y < height) {
        S sum = 0;
        for (int dy = 0; dy < K; dy++)
            for (int dx = 0; dx < K; dx++)
                sum += tile[(threadIdx.y + dy) * TILE_X + threadIdx.x + dx * CHANNELS];
        out[(size_t)y * nx + x] = mean(sum, inside(x / CHANNELS, width) * inside(y, height));
    }
}

// Adds along the rows first and keeps those sums, then adds the sums along the columns.
// It takes K + K loads instead of K * K, a second array in shared memory and one more barrier: a gain from a radius of
// 2 or 3 on. What remains: the halo, the barriers, and shared memory, through which every element passes several times.
extern "C" __global__ void blur_separable(const T *in, T *out, int width, int height)
{
    extern __shared__ uint4 memory[];
    T *tile = (T *)memory;
    S *sums = (S *)(memory + (TILE_X * TILE_Y * sizeof(T) + 15) / 16);

    int nx = width * CHANNELS;
    int x = blockIdx.x * BDIMX + threadIdx.x;
    int y = blockIdx.y * BDIMY + threadIdx.y;

    read_tile(tile, in, nx, height);
    __syncthreads();
    for (int i = threadIdx.y * BDIMX + threadIdx.x; i < BDIMX * TILE_Y; i += BLOCK) {
        S sum = 0;
        for (int dx = 0; dx < K; dx++)
            sum += tile[i / BDIMX * TILE_X + i % BDIMX + dx * CHANNELS];
        sums[i] = sum;
    }
    __syncthreads();
    if (x < nx && y < height) {
        S sum = 0;
        for (int dy = 0; dy < K; dy++)
            sum += sums[(threadIdx.y + dy) * BDIMX + threadIdx.x];
        out[(size_t)y * nx + x] = mean(sum, inside(x / CHANNELS, width) * inside(y, height));
    }
}

// From here a thread owns COLUMNS neighbouring columns and slides down ROWS rows of them. The sums along the last K
// rows stay in its registers: the sum of a new row replaces the oldest. That takes K * COLUMNS registers, so the host
// refuses these rungs for large radii, and they are not compiled then.
#ifndef TURNS
#define TURNS 2  // how often a thread goes through its ring of K rows; more rows a thread are fewer threads
#endif
#define ROWS (TURNS * K)
#ifndef WIDE
#define WIDE 4  // columns of a thread in blur_vector: 4 floats or 8 bytes
#endif
#define MAX_SUMS 60
#define MAX_K 25

template <int COLUMNS> struct __align__(COLUMNS * sizeof(T)) Columns { T at[COLUMNS]; };

// Adds up the neighbours along row y for COLUMNS elements from x on. INSIDE: no neighbour is outside the picture.
template <int COLUMNS, bool INSIDE>
__device__ __forceinline__ void add_row(S sums[COLUMNS], const T *in, int nx, int ny, int x, int y)
{
    const int halo = (REACH + COLUMNS - 1) / COLUMNS;  // groups of columns on each side
    T near[(2 * halo + 1) * COLUMNS];

#pragma unroll
    for (int h = -halo; h <= halo; h++) {
        int from = x + h * COLUMNS;
        Columns<COLUMNS> group = {};
        if (INSIDE || (from >= 0 && from < nx && y >= 0 && y < ny))
            group = *(const Columns<COLUMNS> *)(in + (size_t)y * nx + from);
#pragma unroll
        for (int c = 0; c < COLUMNS; c++)
            near[(h + halo) * COLUMNS + c] = group.at[c];
    }
#pragma unroll
    for (int c = 0; c < COLUMNS; c++) {
        sums[c] = near[halo * COLUMNS + c - REACH];
#pragma unroll
        for (int dx = CHANNELS - REACH; dx <= REACH; dx += CHANNELS)
            sums[c] += near[halo * COLUMNS + c + dx];
    }
}

// Slides down the rows from y0 on.
template <int COLUMNS, bool INSIDE>
__device__ __forceinline__ void slide(const T *in, T *out, int width, int height, int x, int y0)
{
    int nx = width * CHANNELS;
    int rows = INSIDE ? ROWS : min(ROWS, height - y0);
    S ring[K][COLUMNS];

#pragma unroll
    for (int r = 0; r < K - 1; r++)
        add_row<COLUMNS, INSIDE>(ring[r], in, nx, height, x, y0 - RADIUS + r);
    for (int done = 0; done < rows; done += K)
#pragma unroll
        for (int r = 0; r < K; r++) {  // unrolled, so that every element of the ring is a register
            int y = y0 + done + r;
            if (!INSIDE && done + r >= rows)
                break;
            add_row<COLUMNS, INSIDE>(ring[(r + K - 1) % K], in, nx, height, x, y + RADIUS);
            Columns<COLUMNS> result;
#pragma unroll
            for (int c = 0; c < COLUMNS; c++) {
                S sum = ring[0][c];
#pragma unroll
                for (int k = 1; k < K; k++)
                    sum += ring[k][c];
                result.at[c] = mean(sum, INSIDE ? K * K : inside((x + c) / CHANNELS, width) * inside(y, height));
            }
            *(Columns<COLUMNS> *)(out + (size_t)y * nx + x) = result;
        }
}

// The same as `slide`, but tests for missing neighbours only near the edge of the picture.
template <int COLUMNS>
__device__ __forceinline__ void slide_down(const T *in, T *out, int width, int height, int x, int y0)
{
    const int far = (REACH + COLUMNS - 1) / COLUMNS * COLUMNS;
    int nx = width * CHANNELS;

    if (x >= nx || y0 >= height)
        return;
    if (x >= far && x + COLUMNS + far <= nx && y0 >= RADIUS && y0 + ROWS + RADIUS <= height)
        slide<COLUMNS, true>(in, out, width, height, x, y0);
    else
        slide<COLUMNS, false>(in, out, width, height, x, y0);
}

#if K <= MAX_K
// Slides each thread down ROWS rows of one column, with the sums of the last K rows in registers.
// A new row costs K loads, which hit the cache, and no barrier; shared memory is not needed. The halo shrinks to RADIUS
// rows above and below ROWS. What remains: every access moves sizeof(T) bytes.
extern "C" __global__ void blur_slide(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    int x = blockIdx.x * BDIMX + threadIdx.x;
    int y0 = (blockIdx.y * BDIMY + threadIdx.y) * ROWS;

    slide_down<1>(in, out, width, height, x, y0);
}
#endif

#if K * WIDE <= MAX_SUMS
// Gives each thread WIDE columns: 16 bytes an access for float, 8 for unsigned char.
// Three wide loads hold the neighbours of four columns along a row, for a radius up to 4. What remains: rows that do
// not start at a multiple of WIDE elements go column by column, as in slide, and bytes are added one by one.
extern "C" __global__ void blur_vector(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    int x = blockIdx.x * BDIMX * WIDE + threadIdx.x;
    int y0 = (blockIdx.y * BDIMY + threadIdx.y) * ROWS;

    if (width * CHANNELS % WIDE == 0)
        slide_down<WIDE>(in, out, width, height, x + threadIdx.x * (WIDE - 1), y0);
    else
        for (int c = 0; c < WIDE; c++)
            slide_down<1>(in, out, width, height, x + c * BDIMX, y0);
}
#endif
