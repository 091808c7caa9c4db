// Box blur by stacked strips: a warp requests all rows of a short strip at once, and the warps of a block have strips
// below each other. For a radius of 3:
//
//     warp 0   | rows 0 to 3  |     reads rows -3 to 6
//     warp 1   | rows 4 to 7  |     reads rows  1 to 10; warps 0 and 2 request most of them at the same time: they come
//     warp 2   | rows 8 to 11 |     from the L2 cache once, and then from the SM's cache

// So short strips cost little more traffic, no row waits for the row before, and warps begin and end in the order in
// which the picture lies in memory. Strips are numbered through the whole picture, with SIDE groups of zeros after each
// row of blocks, so a warp may have the end of one such row and the beginning of the next. If little is wasted by it
// (STACK_APART), each row of blocks begins with a new strip instead. A warp without edge elements tests nothing. A warp
// with edge elements is hardly slower, because only the outermost columns of a row have other factors; that matters, as
// the last rows of the picture come last, and the whole GPU would wait for them.

#include "pairs.cuh"

#if RADIUS <= MAX_STRIP

#ifndef STACK_ROWS  // rows that a warp writes in a strip; the host sets 5 for ragged rows
#define STACK_ROWS (sizeof(T) > 1 ? RADIUS > 1 ? 4 : 2 : RADIUS > 3 ? 5 : 4)
#endif
#ifndef STACK_THREADS  // threads on an SM that the registers must suffice for
#define STACK_THREADS (RADIUS <= 3 ? 896 : sizeof(T) == 1 ? 640 : 512)
#endif
#ifndef STACK_APART
#define STACK_APART 0  // whether rows of blocks begin new strips; the host sets it, by the width
#endif
#ifndef STACK_RAGGED
#define STACK_RAGGED 1  // the host sets 0 if all rows are aligned: then a thread needs fewer registers
#endif
#define STACK_HELD (STACK_ROWS + 2 * RADIUS)

// Returns the means of a lane's columns in one row, from the sums over K rows.
template <bool AT_EDGE>
__device__ __forceinline__ Words row_means(const float down[SPAN], Edge edge)
{
    float near[NEAR + SPAN + NEAR];
    const float all = AT_EDGE ? __frcp_rn(K * edge.down) : 1.0f / (K * K);
    Words result;

#pragma unroll
    for (int c = 0; c < SPAN; c++)
        near[NEAR + c] = down[c];
#pragma unroll
    for (int w = 0; w < NEAR; w++) {
        near[NEAR - 1 - w] = __shfl_up_sync(ALL_LANES, down[SPAN - 1 - w % SPAN], w / SPAN + 1);
        near[NEAR + SPAN + w] = __shfl_down_sync(ALL_LANES, down[w % SPAN], w / SPAN + 1);
    }
#pragma unroll
    for (int c = 0; c < SPAN; c++) {
        float sum = near[NEAR + c - REACH];
#pragma unroll
        for (int dx = CHANNELS - REACH; dx <= REACH; dx += CHANNELS)
            sum += near[NEAR + c + dx];
        float by = all;
        if (AT_EDGE && edge.words >> c & 1)
            by = __frcp_rn(edge.down * inside((edge.x + c) / CHANNELS, edge.width));
        result.at[c] = __float_as_uint(sum * by);
    }
    return result;
}

// Calls write(means) for row `top` and the STACK_ROWS - 1 rows below it; `rows` has all rows that they need.
template <bool AT_EDGE, typename Write>
__device__ __forceinline__ void write_means(float, const Words rows[STACK_HELD], Edge edge, int top, int height,
                                            Write write)
{
#pragma unroll
    for (int o = 0; o < STACK_ROWS; o++) {
        float down[SPAN];
#pragma unroll
        for (int c = 0; c < SPAN; c++) {
            down[c] = __uint_as_float(rows[o].at[c]);
#pragma unroll
            for (int k = 1; k < K; k++)
                down[c] += __uint_as_float(rows[o + k].at[c]);
        }
        edge.down = inside(top + o, height);
        write(row_means<AT_EDGE>(down, edge));
    }
}

// The same for bytes, with sums of two columns in a register.
template <bool AT_EDGE, typename Write>
__device__ __forceinline__ void write_means(unsigned, const Words rows[STACK_HELD], Edge edge, int top, int height,
                                            Write write)
{
    unsigned whole[WORDS] = {}, odd[WORDS] = {};

#pragma unroll
    for (int r = 0; r < STACK_HELD; r++) {
#pragma unroll
        for (int w = 0; w < WORDS; w++) {
            const int old = r >= K ? r - K : 0;
            whole[w] += rows[r].at[w] - (r >= K ? rows[old].at[w] : 0);
            odd[w] += __byte_perm(rows[r].at[w], 0, 0x4341) - (r >= K ? __byte_perm(rows[old].at[w], 0, 0x4341) : 0);
        }
        if (r < K - 1)
            continue;
        edge.down = inside(top + r - (K - 1), height);
        write(pair_means<AT_EDGE>(whole, odd, edge));
    }
}

// Reads and writes a warp's strip from row `top` on; the lane's columns begin with x. `holds`: they are inside.
template <bool AT_EDGE>
__device__ __forceinline__ void stack(const T *in, T *out, int width, int height, int x, int top, bool holds,
                                      bool writes)
{
    const long long nx = width * CHANNELS;
    Words rows[STACK_HELD];
    Edge edge = {0, x, width, K};

    in += (top - RADIUS) * nx + x;
    out += top * nx + x;
#pragma unroll
    for (int r = 0; r < STACK_HELD; r++) {
        if (AT_EDGE)
            rows[r] = {};
        if (!AT_EDGE || (holds && (unsigned)(top - RADIUS + r) < (unsigned)height))
            rows[r] = *(const Words *)in;
        in += nx;
    }
    if (AT_EDGE)
#pragma unroll
        for (int w = 0; w < WORDS; w++)
            if (x + w * SPAN / WORDS < REACH || x + (w + 1) * SPAN / WORDS + REACH > nx)
                edge.words |= 1 << w;
    int y = top;
    write_means<AT_EDGE>(S(), rows, edge, top, height, [&](Words means) {
        if (writes && (!AT_EDGE || y < height))
            *(Words *)out = means;
        out += nx;
        y++;
    });
}

__device__ __forceinline__ void stack_ragged(const T *in, T *out, int nx, int height, int x, int top, bool writes);

// Requests all rows of a short strip at once, which warps of a block share by the SM's cache.
// A copy in this order has 0.95 of a plain copy's speed. So has this rung if there is little to add: for floats, and
// for bytes with a radius of 1. What remains, for bytes with a larger radius: additions, which keep the integer unit
// busy two thirds of the time. Ragged rows of floats go as in strip.
extern "C" __global__ void __launch_bounds__(BLOCK, (STACK_THREADS + BLOCK - 1) / BLOCK)
    blur_stacked(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    int thread = threadIdx.y * BDIMX + threadIdx.x;
    int nx = width * CHANNELS;

    if (STACK_RAGGED && sizeof(T) > 1 && nx % SPAN) {
        blur_by_strips(in, out, width, height);
        return;
    }
    if (STACK_RAGGED && nx % SPAN && blockIdx.x < BORDER_BLOCKS) {
        fill_edge(in, out, width, height, (size_t)blockIdx.x * BLOCK + thread, (size_t)BORDER_BLOCKS * BLOCK);
        return;
    }
    if (BLOCK % WARP && thread / WARP >= WARPS)
        return;
    int warp = __shfl_sync(ALL_LANES, thread / WARP, 0);
    int lane = thread % WARP;
    if (STACK_RAGGED && sizeof(T) == 1 && nx % SPAN) {
        const int writers = WARP - 2 * SIDE - 2;
        int strips = (nx / SPAN + 2 + writers - 1) / writers;
        int block = blockIdx.x - BORDER_BLOCKS;
        int x = (block % strips * writers + lane - SIDE - 1) * SPAN;
        int top = RADIUS + (block / strips * WARPS + warp) * STACK_ROWS;
        if (nx >= 2 * MARGIN && top < height - RADIUS - 1)
            stack_ragged(in, out, nx, height, x, top, lane >= SIDE && lane < SIDE + writers);
        return;
    }
    const int writers = WARP - 2 * SIDE;
    const int strips = (nx / SPAN + writers - 1) / writers;
    const int groups = STACK_APART ? 1 << 30 : nx / SPAN + SIDE;  // in a row, with those of zeros
    int row = STACK_APART ? blockIdx.x / strips : 0;              // of blocks
    int first = (STACK_APART ? blockIdx.x % strips : blockIdx.x) * writers - SIDE;
    int column = first % groups;
    int top = ((row + first / groups) * WARPS + warp) * STACK_ROWS;
    bool writes = lane >= SIDE && lane < WARP - SIDE;

    if (column > 0 && (column + WARP + SIDE) * SPAN < nx && top >= RADIUS && top + STACK_ROWS + RADIUS <= height) {
        stack<false>(in, out, width, height, (column + lane) * SPAN, top, true, writes);
        return;
    }
    int at = max(0, first + lane);
    int x = at % groups * SPAN;
    bool holds = x < nx && first + lane >= 0;
    top = ((row + at / groups) * WARPS + warp) * STACK_ROWS;
    stack<true>(in, out, width, height, x, top, holds, holds && writes);
}

// Does the same as `stack` for bytes whose rows start at any address, except the edge. `writes`: whether the lane
// writes results, or only reads for its neighbours.
__device__ __forceinline__ void stack_ragged(const T *in, T *out, int nx, int height, int x, int top, bool writes)
{
    const int end = min(top + STACK_ROWS, height - RADIUS - 1), last = end + RADIUS - 1;
    const int from = min(max(x, 0), (nx - 1) / SPAN * SPAN + SPAN);  // lanes beyond the row also read in it
    Words rows[STACK_HELD];

#pragma unroll
    for (int r = 0; r < STACK_HELD; r++)
        rows[r] = *(const Words *)(in + ((size_t)min(top - RADIUS + r, last) * nx + from) / SPAN * SPAN);
#pragma unroll
    for (int r = 0; r < STACK_HELD; r++)
        rows[r] = shifted_together(rows[r], (unsigned)min(top - RADIUS + r, last) * nx % SPAN);
    int y = top;
    write_means<false>(S(), rows, {}, top, height, [&](Words means) {
        unsigned by = -((unsigned)y * nx) % SPAN;  // to the next multiple of SPAN
        int start = x + by;
        Words words = shifted_together(means, by);
        if (writes && y < end && start >= REACH && start + SPAN <= nx - REACH)
            *(Words *)(out + (size_t)y * nx + start) = words;
        y++;
    });
}
#endif
