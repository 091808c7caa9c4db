// How a warp processes a strip of a picture (see blur_strips.cu), and the edge of the picture, which strips leave out.

#include "picture.cuh"

#define MAX_STRIP 7

#if RADIUS <= MAX_STRIP

#ifndef BYTES
#define BYTES (sizeof(T) == 1 && RADIUS > 2 ? 8 : 16)  // bytes of a row in a lane
#endif
#ifndef STRIP_TURNS
#define STRIP_TURNS (sizeof(T) == 1 ? 4 : 3)  // how often a warp goes through its ring in a strip
#endif
#define WARP 32
#define WARPS (BLOCK / WARP)
#define WORDS (BYTES / 4)
#define SPAN (BYTES / (int)sizeof(T))            // columns of a lane
#define SIDE ((REACH + SPAN - 1) / SPAN)         // lanes on each side that only read columns for their neighbours
#define NEAR ((REACH * (int)sizeof(T) + 3) / 4)  // words on each side of a lane's that hold neighbours
#define TURN (sizeof(T) == 1 ? K + 1 : K)        // rows whose sums a lane keeps, in a ring
#define AHEAD (K < 10 ? (int)TURN : 1)           // rows that a lane requests ahead
#define STRIP_ROWS (STRIP_TURNS * (int)TURN - (K - 1))
#define MARGIN (REACH + SPAN)                    // columns at each end of a row that the strips may leave out
#define ALL_LANES 0xFFFFFFFF
#define BORDER_ROWS (RADIUS > 1 ? 8 : 4)         // rows of a column at the edge that a thread slides down
#ifndef BORDER_BLOCKS
#define BORDER_BLOCKS 264                        // how many of the first blocks do the edge; the host sets it
#endif

struct __align__(BYTES) Words { unsigned at[WORDS]; };

// Returns WORDS words from `by` elements after the lane's first: the lane's own and the next lane's. Whole words move
// in steps that are powers of two, because registers cannot be indexed; the remaining bytes move by a funnel shift.
__device__ __forceinline__ Words shifted(Words mine, unsigned by)
{
    unsigned word[2 * WORDS];

#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        word[w] = mine.at[w];
        word[WORDS + w] = __shfl_down_sync(ALL_LANES, mine.at[w], 1);
    }
#pragma unroll
    for (int step = WORDS / 2; step > 0; step /= 2)
#pragma unroll
        for (int w = 0; w < 2 * WORDS - step; w++)
            word[w] = by * sizeof(T) / 4 & step ? word[w + step] : word[w];
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        mine.at[w] = sizeof(T) == 1 ? __funnelshift_r(word[w], word[w + 1], 8 * by) : word[w];
    return mine;
}

// Returns a word with ones in the bytes that are neighbours of a column; words and columns count from the lane's first.
// With a radius of 1, column 2 has the neighbours 1, 2 and 3: word 0 is 0x01010100, and the other words are 0.
__device__ constexpr unsigned ones(int word, int column)
{
    unsigned bytes = 0;
    for (int b = 0; b < 4; b++) {
        int from = 4 * word + b - column;
        if (from >= -REACH && from <= REACH && (from + REACH) % CHANNELS == 0)
            bytes |= 1u << 8 * b;
    }
    return bytes;
}

// Adds row r of a turn, given by its words and their neighbours in `near`, and returns the sums over the last K rows.
__device__ __forceinline__ void add_row(float sums[SPAN], float ring[TURN][SPAN], int r, const unsigned *near)
{
#pragma unroll
    for (int c = 0; c < SPAN; c++) {
        ring[r][c] = __uint_as_float(near[NEAR + c - REACH]);
#pragma unroll
        for (int dx = CHANNELS - REACH; dx <= REACH; dx += CHANNELS)
            ring[r][c] += __uint_as_float(near[NEAR + c + dx]);
        sums[c] = ring[0][c];
#pragma unroll
        for (int k = 1; k < K; k++)
            sums[c] += ring[k][c];
    }
}

// The same for bytes: one instruction multiplies four bytes by ones or zeros and adds them. The ring holds totals of
// all rows so far, whose differences are exact in whole numbers. A new total takes the place that the last one freed.
__device__ __forceinline__ void add_row(unsigned sums[SPAN], unsigned ring[TURN][SPAN], int r,
                                        const unsigned *near)
{
#pragma unroll
    for (int c = 0; c < SPAN; c++) {
        unsigned total = ring[(r + K) % TURN][c];
#pragma unroll
        for (int w = -NEAR; w < WORDS + NEAR; w++)
            if (ones(w, c))
                total = __dp4a(near[NEAR + w], ones(w, c), total);
        ring[r][c] = total;
        sums[c] = total - ring[(r + 1) % TURN][c];
    }
}

// Returns the means of a lane's columns.
__device__ __forceinline__ Words means(const float sums[SPAN])
{
    Words result;
#pragma unroll
    for (int c = 0; c < SPAN; c++)
        result.at[c] = __float_as_uint(mean(sums[c], K * K));
    return result;
}

// The same for bytes. A sum times 2^24 / K^2, rounded up, has its quotient in the highest byte: exactly, up to K = 16.
__device__ __forceinline__ Words means(const unsigned sums[SPAN])
{
    const unsigned inverse = (1 << 24) / (K * K) + 1;
    unsigned by[SPAN];
    Words result;

#pragma unroll
    for (int c = 0; c < SPAN; c++)
        by[c] = sums[c] * inverse + K * K / 2 * inverse;
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        result.at[w] = __byte_perm(__byte_perm(by[4 * w], by[4 * w + 1], 0x0073),
                                   __byte_perm(by[4 * w + 2], by[4 * w + 3], 0x0073), 0x5410);
    return result;
}

// A warp's strip: the first column of the lane, the rows that are written, and whether this lane writes.
struct Strip {
    int x, begin, end;
    bool ragged, writes;
};

// Slides a warp down its strip. ALIGNED: every row starts at a multiple of BYTES.
template <bool ALIGNED>
__device__ __forceinline__ void slide_warp(const T *in, T *out, int nx, Strip strip)
{
    const int x = strip.x, begin = strip.begin, end = strip.end;
    const int last = end + RADIUS - 1;
    const int from = min(max(x, 0), (nx - 1) / SPAN * SPAN + SPAN);  // lanes beyond the row also read in it
    S ring[TURN][SPAN] = {};
    Words ahead[AHEAD];  // rows that are requested ahead

    auto read = [&](int y) {
        size_t at = (size_t)min(y, last) * nx + from;
        return *(const Words *)(in + (ALIGNED ? at : at / SPAN * SPAN));
    };
#pragma unroll
    for (int r = 0; r < AHEAD; r++)
        ahead[r] = read(begin - RADIUS + r);
    for (int first = begin - RADIUS; first <= last; first += TURN)
#pragma unroll
        for (int r = 0; r < TURN; r++) {
            int y = first + r, to = y - RADIUS;
            unsigned near[NEAR + WORDS + NEAR];
            S sums[SPAN];

            Words words = ahead[r % AHEAD];
            ahead[r % AHEAD] = read(y + AHEAD);
            if (!ALIGNED)
                words = shifted(words, (unsigned)y * nx % SPAN);
#pragma unroll
            for (int w = 0; w < WORDS; w++)
                near[NEAR + w] = words.at[w];
#pragma unroll
            for (int w = 0; w < NEAR; w++) {
                near[NEAR - 1 - w] = __shfl_up_sync(ALL_LANES, words.at[WORDS - 1 - w % WORDS], w / WORDS + 1);
                near[NEAR + WORDS + w] = __shfl_down_sync(ALL_LANES, words.at[w % WORDS], w / WORDS + 1);
            }
            add_row(sums, ring, r, near);
            if (to >= begin && to < end) {
                unsigned by = ALIGNED ? 0 : -((unsigned)to * nx) % SPAN;  // to the next multiple of BYTES
                words = ALIGNED ? means(sums) : shifted(means(sums), by);
                int start = x + by;
                if (strip.writes && start >= REACH && start + SPAN <= nx - REACH)
                    *(Words *)(out + (size_t)to * nx + start) = words;
            }
        }
}

// Returns the sum of the neighbours along row y that are inside.
__device__ __forceinline__ S sum_along(const T *in, int nx, int x, int y)
{
    S sum = 0;
#pragma unroll
    for (int dx = -REACH; dx <= REACH; dx += CHANNELS)
        if (x + dx >= 0 && x + dx < nx)
            sum += in[(size_t)y * nx + x + dx];
    return sum;
}

// Writes the elements that the strips leave out: the first and last rows, and those of the MARGIN columns at both ends
// of the other rows that no strip writes. Threads slide down these columns, BORDER_ROWS rows each: K loads an element,
// not K * K. A narrow picture is all edge. This is thread `at` of `threads`.
__device__ __forceinline__ void fill_edge(const T *in, T *out, int width, int height, size_t at, size_t threads)
{
    int nx = width * CHANNELS;
    int rows = nx < 2 * MARGIN ? height : min(height, 2 * RADIUS + 1);  // one more than strips miss, see blur_strip
    size_t slides = (size_t)((height - rows + BORDER_ROWS - 1) / BORDER_ROWS) * 2 * MARGIN;

    for (size_t i = at; i < slides; i += threads) {
        int x = i % (2 * MARGIN);
        int begin = RADIUS + i / (2 * MARGIN) * BORDER_ROWS;
        int end = min(begin + BORDER_ROWS, height - RADIUS - 1);
        S ring[K] = {};

        x += x < MARGIN ? 0 : nx - 2 * MARGIN;
        unsigned count = K * inside(x / CHANNELS, width);
#pragma unroll 1
        for (int y = begin - 2 * RADIUS; y < end; y++) {
            S sum = sum_along(in, nx, x, y + RADIUS);
#pragma unroll
            for (int k = 0; k < K - 1; k++)
                ring[k] = ring[k + 1];
            ring[K - 1] = sum;
#pragma unroll
            for (int k = 0; k < K - 1; k++)
                sum += ring[k];
            int start = x - (int)(((size_t)y * nx + x) % SPAN);
            if (y >= begin && (start < REACH || start + SPAN > nx - REACH))
                out[(size_t)y * nx + x] = mean(sum, count);
        }
    }
    for (size_t i = at; i < (size_t)rows * nx; i += threads) {
        int x = i % nx, y = i / nx;
        y += y < RADIUS ? 0 : height - rows;
        out[(size_t)y * nx + x] = mean_around(in, nx, height, x, y);
    }
}

// Returns the strip of a thread's warp, of `rows` rows; it is empty if begin is not less than end.
__device__ __forceinline__ Strip strip_of(int thread, int nx, int height, int rows)
{
    // The shuffle tells the compiler that all lanes have the same value, so it expects no divergence.
    int warp = (blockIdx.x - BORDER_BLOCKS) * WARPS + __shfl_sync(ALL_LANES, thread / WARP, 0);
    int ragged = nx % SPAN ? 1 : 0;
    int writers = WARP - 2 * SIDE - 2 * ragged;  // after each shift the last lane lacks its right half
    int strips = ((nx + SPAN - 1) / SPAN + ragged + writers - 1) / writers;
    int lane = thread % WARP - SIDE;
    int x = (warp % strips * writers + lane - ragged) * SPAN;  // results are shifted to the right
    int begin = warp / strips * rows + RADIUS;
    int end = min(begin + rows, height - RADIUS - 1);  // groups of the last row may end beyond the picture
    return {x, begin, end, ragged != 0, lane >= 0 && lane < writers};
}

// Does the work of blur_strip, with its grid.
__device__ __forceinline__ void blur_by_strips(const T *in, T *out, int width, int height)
{
    int thread = threadIdx.y * BDIMX + threadIdx.x;
    int nx = width * CHANNELS;

    if (blockIdx.x < BORDER_BLOCKS)
        fill_edge(in, out, width, height, (size_t)blockIdx.x * BLOCK + thread, (size_t)BORDER_BLOCKS * BLOCK);
    else if (BLOCK % WARP == 0 || thread / WARP < WARPS) {
        Strip strip = strip_of(thread, nx, height, STRIP_ROWS);
        if (nx >= 2 * MARGIN && strip.begin < strip.end) {
            if (!strip.ragged)
                slide_warp<true>(in, out, nx, strip);
            else
                slide_warp<false>(in, out, nx, strip);
        }
    }
}

#endif
