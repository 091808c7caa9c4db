// Sums of two columns in one register, for bytes: see blur_strips.cu. The kernels pairs, bands and stacked use it.

#include "strips.cuh"

#if RADIUS <= MAX_STRIP

#ifndef PAIR_ROWS
#define PAIR_ROWS (RADIUS > 1 ? 14 : 10)  // rows that a warp writes in a strip
#endif
#ifndef PAIR_AHEAD
#define PAIR_AHEAD (RADIUS > 1 ? 4 : 6)  // rows that a lane requests ahead; the host sets 3 for ragged rows
#endif
#define PAIR_RING (K + PAIR_AHEAD)

// Returns a * b + c for the two numbers of half precision in each register.
__device__ __forceinline__ unsigned fma_halves(unsigned a, unsigned b, unsigned c)
{
    unsigned d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Returns the means of two columns for K = 3, each in the low byte of a half. As bits of half precision, a whole number
// n up to 2047 means n * 2^-24. The sum of six neighbours fits, the sum of nine does not, so they come in two parts.
// Scaled by 2^15, minus 2.25 (1152 / 512), every sum is exact in 11 bits. Times 56.875 (512 / 9 less 1 / 4096 of it),
// plus 1152, it is the mean plus 1024, rounded to the nearest: the error is below 1 / 32, and a ninth is at least 1 /
// 18 from a half.
__device__ __forceinline__ unsigned means_of_nine(unsigned six, unsigned three)
{
    unsigned part = fma_halves(six, 0x78007800, 0xC080C080);
    return fma_halves(fma_halves(three, 0x78007800, part), 0x531C531C, 0x64806480);
}

// Returns the factor by which `means_of_pair` multiplies a sum of `count` elements.
__device__ __forceinline__ float share(unsigned count) { return __fdividef(0x1.00008p126f, count); }

// Returns the means of two columns for any K, from their sums in the halves. As bits of a float, a whole number n means
// n * 2^-149. Times 2^126 / count, plus 1, its last bits are the mean, rounded to the nearest. The factor is larger by
// 2^-17 of it, so that a half is rounded up: other means of 225 or fewer bytes are at least 1 / 450 from a half.
__device__ __forceinline__ unsigned means_of_pair(unsigned sums, float lower, float upper)
{
    unsigned low = __float_as_uint(__fmaf_ieee_rn(__uint_as_float(sums & 0xFFFF), lower, 1));
    unsigned high = __float_as_uint(__fmaf_ieee_rn(__uint_as_float(sums >> 16), upper, 1));
    return __byte_perm(low, high, 0x0400);
}

// The words of a lane with columns that lack neighbours, one bit each; the lane's first column, the picture's width,
// and the number of rows in a sum that are inside.
struct Edge {
    unsigned words;
    int x, width;
    unsigned down;
};

// Adds neighbours along the row to the sums over K rows, and returns the means. AT_EDGE: some columns may lack
// neighbours.
template <bool AT_EDGE>
__device__ __forceinline__ Words pair_means(const unsigned whole[WORDS], const unsigned odd[WORDS], Edge edge)
{
    unsigned evens[NEAR + WORDS + NEAR], odds[NEAR + WORDS + NEAR];
    Words result;

#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        evens[NEAR + w] = whole[w] - odd[w] * 256;
        odds[NEAR + w] = odd[w];
    }
#pragma unroll
    for (int w = 0; w < NEAR; w++) {  // in the next word, the nearest column is 4 w + 1 away, the second 4 w + 2
        const int own = w % WORDS, lanes = w / WORDS + 1;
        odds[NEAR - 1 - w] = __shfl_up_sync(ALL_LANES, odds[NEAR + WORDS - 1 - own], lanes);
        evens[NEAR + WORDS + w] = __shfl_down_sync(ALL_LANES, evens[NEAR + own], lanes);
        if (REACH < 4 * w + 2)
            continue;
        evens[NEAR - 1 - w] = __shfl_up_sync(ALL_LANES, evens[NEAR + WORDS - 1 - own], lanes);
        odds[NEAR + WORDS + w] = __shfl_down_sync(ALL_LANES, odds[NEAR + own], lanes);
    }
    auto pair = [&](int c) {  // the sums of columns c and c + 2
        const int w = (c + 4 * NEAR) / 4;
        unsigned near = c & 1 ? odds[w] : evens[w];
        return c & 2 ? __byte_perm(near, c & 1 ? odds[w + 1] : evens[w + 1], 0x5432) : near;
    };
    const float all = AT_EDGE ? share(K * edge.down) : 0x1.00008p126f / (K * K);
#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        unsigned means[2];  // of the word's columns 0 and 2, and of 1 and 3
        float by[4] = {all, all, all, all};
        if (AT_EDGE && edge.words >> w & 1)
#pragma unroll
            for (int c = 0; c < 4; c++)
                by[c] = share(edge.down * inside((edge.x + 4 * w + c) / CHANNELS, edge.width));
        // Two neighbouring columns share all neighbours but the first of one and the last of the other.
        const int shared = CHANNELS == 1 && K > 3 ? K - 1 : 0;
        unsigned both = 0;
#pragma unroll
        for (int n = 0; n < shared; n++)
            both += pair(4 * w + 1 - REACH + n);
#pragma unroll
        for (int b = 0; b < 2; b++) {
            int c = 4 * w + b;
            unsigned last = pair(shared && b == 0 ? c - REACH : c + REACH);
            unsigned sum = both;
#pragma unroll
            for (int dx = -REACH; dx < REACH; dx += CHANNELS)
                if (!shared)
                    sum += pair(c + dx);
            means[b] = K == 3 && !AT_EDGE ? means_of_nine(sum, last) : means_of_pair(sum + last, by[b], by[b + 2]);
        }
        result.at[w] = __byte_perm(means[0], means[1], 0x6240);
    }
    return result;
}

// Returns the same as `shifted`, for bytes. `by` is the same in all lanes, so the whole warp branches, by halves, to
// one of WORDS ways: fewer instructions than a choice for each word. Way FIRST skips FIRST words; COUNT ways are left.
template <int FIRST = 0, int COUNT = WORDS>
__device__ __forceinline__ Words shifted_together(Words mine, unsigned by)
{
    const int half = COUNT / 2;
    if (COUNT > 1 && by / 4 < FIRST + half)
        return shifted_together<FIRST, half>(mine, by);
    if (COUNT > 1)
        return shifted_together<FIRST + half, half>(mine, by);
    unsigned word[WORDS + 1];
    Words result;

#pragma unroll
    for (int w = 0; w <= WORDS; w++) {
        const int from = (FIRST + w) % WORDS;
        word[w] = FIRST + w < WORDS ? mine.at[from] : __shfl_down_sync(ALL_LANES, mine.at[from], 1);
    }
#pragma unroll
    for (int w = 0; w < WORDS; w++)
        result.at[w] = __funnelshift_r(word[w], word[w + 1], 8 * by);
    return result;
}

// Slides a warp down its strip, as slide_warp does.
template <bool ALIGNED>
__device__ __forceinline__ void slide_pairs(const T *in, T *out, int nx, Strip strip)
{
    const int x = strip.x, begin = strip.begin, end = strip.end;
    const int last = end + RADIUS - 1;
    const int from = min(max(x, 0), (nx - 1) / SPAN * SPAN + SPAN);
    unsigned whole[WORDS] = {}, odd[WORDS] = {};
    Words ring[PAIR_RING] = {};  // the K rows of the sums, and those under way

    auto read = [&](int y) {
        size_t at = (size_t)min(y, last) * nx + from;
        return *(const Words *)(in + (ALIGNED ? at : at / SPAN * SPAN));
    };
#pragma unroll
    for (int r = 0; r < PAIR_AHEAD; r++)
        ring[r] = read(begin - RADIUS + r);
    for (int first = begin - RADIUS; first <= last; first += PAIR_RING)
#pragma unroll
        for (int r = 0; r < PAIR_RING; r++) {
            int y = first + r, to = y - RADIUS;
            Words &row = ring[r], &old = ring[(r + PAIR_AHEAD) % PAIR_RING];

            if (!ALIGNED)
                row = shifted_together(row, (unsigned)y * nx % SPAN);
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                whole[w] += row.at[w] - old.at[w];
                odd[w] += __byte_perm(row.at[w], 0, 0x4341) - __byte_perm(old.at[w], 0, 0x4341);
            }
            old = read(y + PAIR_AHEAD);
            if (to < begin)
                continue;
            if (to >= end)
                return;
            unsigned by = ALIGNED ? 0 : -((unsigned)to * nx) % SPAN;  // to the next multiple of BYTES
            Words words = ALIGNED ? pair_means<false>(whole, odd, {})
                                  : shifted_together(pair_means<false>(whole, odd, {}), by);
            int start = x + by;
            if (strip.writes && start >= REACH && start + SPAN <= nx - REACH)
                *(Words *)(out + (size_t)to * nx + start) = words;
        }
}

// Does the work of blur_pairs, with its grid.
__device__ __forceinline__ void blur_by_pairs(const T *in, T *out, int width, int height)
{
    int thread = threadIdx.y * BDIMX + threadIdx.x;
    int nx = width * CHANNELS;

    if (sizeof(T) > 1)
        return;
    if (blockIdx.x < BORDER_BLOCKS) {
        fill_edge(in, out, width, height, (size_t)blockIdx.x * BLOCK + thread, (size_t)BORDER_BLOCKS * BLOCK);
        return;
    }
    if (BLOCK % WARP && thread / WARP >= WARPS)
        return;
    Strip strip = strip_of(thread, nx, height, PAIR_ROWS);
    if (nx >= 2 * MARGIN && strip.begin < strip.end) {
        if (!strip.ragged)
            slide_pairs<true>(in, out, nx, strip);
        else
            slide_pairs<false>(in, out, nx, strip);
    }
}

#endif
