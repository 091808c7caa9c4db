// Box blur of bytes on tensor cores. The sums along a row are the row times a matrix with ones in a band. For a radius
// of 1 and six columns:
//
//                          | 1 1 . . . . |
//                          | 1 1 1 . . . |
//     | 5 7 2 9 4 6 |  x   | . 1 1 1 . . |   =   | 12 14 18 15 19 10 |
//                          | . . 1 1 1 . |
//                          | . . . 1 1 1 |
//                          | . . . . 1 1 |
//
// The tensor cores add a product to sums, so they also slide down: sums += new row x band - old row x band. That is one
// instruction, mma.m16n8k32: its 32 are 16 bytes of the new row and 16 of the old. No byte is unpacked; sums are exact.

// Lane 4 g + t of a warp holds four bytes of rows g and g + 8 of the left matrix, and gets two columns of the same rows
// of the product. These need not be rows of the picture. Here, row g is the part of one row of the picture that lanes 4
// g to 4 g + 3 hold, 16 bytes each, and row g + 8 their part 512 bytes further on. So a lane loads 16 bytes at a time,
// and gets the sums that it writes. A product takes the word with one number, 0 to 3, of each lane, and the band has
// ones only within a lane. The words before and after a lane's own, -1 and 4, come by shuffles:
//
//     words of a lane     | -1 | 0 | 1 | 2 | 3 | 4 |     two columns of word j add the words j - 1, j and j + 1 times
//                                                        the band: at most three products
//
// The ones are 64, and sums begin with the bits of 2^23. So the bits of a sum are the float 2^23 + 64 sum. One FFMA
// turns it into 2^15 + mean + 1/2, whose second byte is the whole part of the mean.

#include "pairs.cuh"

#define MOST_REACH 4

#if RADIUS <= MAX_STRIP && REACH <= MOST_REACH

#ifndef BAND_ROWS
#define BAND_ROWS 10  // rows that a warp writes in a strip
#endif
#ifndef BAND_AHEAD
#define BAND_AHEAD 5  // rows that a warp has requested and that have not arrived
#endif
#define BAND_GROUP 16                      // bytes of a lane in each half of a warp's part of a row
#define BAND_LENT 2                        // groups of a warp's 64 that are only read by neighbours and not written
#define BAND_ROW (2 * WARP * BAND_GROUP)   // bytes of a row in a warp
#define BAND_RING (K + BAND_AHEAD)         // rows in shared memory: those in the sums, and those that are requested
#define BAND_STEPS (BAND_ROWS + 2 * RADIUS)
#define BAND_THREADS 512                   // most threads of an SM: its registers are not enough for more
#define BAND_ONE 64
#define BAND_ZERO 0x4B000000               // 2^23 in float

#if __CUDA_ARCH__ >= 800
struct Yes { static constexpr bool value = true; };
struct No { static constexpr bool value = false; };

// Low half: four bytes of the band, for the new row. High half: the same times -1, for the old row.
typedef unsigned long long Band;

// A lane's words of a row, from word -1 on, in both halves of the warp's part.
struct BandRow { unsigned words[2][6]; };

// Returns a word of the band: the factor of each of its bytes in the sum of a column. `word` and `column` are relative.
__device__ constexpr unsigned band_word(int word, int column)
{
    return ones(word, column) * BAND_ONE;
}

// Returns whether a word has a neighbour of columns 2 half and 2 half + 1; word 0 holds these columns.
__device__ constexpr bool in_band(int word, int half)
{
    return ones(word, 2 * half) || ones(word, 2 * half + 1);
}

// sums += new x band - old x band.
__device__ __forceinline__ void add_product(int sums[4], const BandRow &now, const BandRow &old, int word, Band band)
{
    asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(now.words[0][word]), "r"(now.words[1][word]), "r"(old.words[0][word]), "r"(old.words[1][word]),
          "r"((unsigned)band), "r"((unsigned)(band >> 32)));
}

// sums += new x band.
__device__ __forceinline__ void add_product(int sums[4], const BandRow &now, int word, Band band)
{
    asm("mma.sync.aligned.m16n8k16.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
        : "+r"(sums[0]), "+r"(sums[1]), "+r"(sums[2]), "+r"(sums[3])
        : "r"(now.words[0][word]), "r"(now.words[1][word]), "r"((unsigned)band));
}

// Starts an asynchronous copy of a group to shared memory; writes zeros if it is not inside.
__device__ __forceinline__ void copy_group(unsigned to, const unsigned char *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// Returns the factor 1 / (64 count), and the summand with which the second byte of the product is the mean. Only for
// even counts, mean + 1/2 may be a whole number, which rounding could cut off: they get half of the least distance, 1 /
// count.
__device__ __forceinline__ float2 band_factors(unsigned count)
{
    float by = __fdividef(1.0f / BAND_ONE, count);
    return {by, fmaf(-8388608.0f, by, count % 2 ? 32768.5f : 32768.5f + by * (BAND_ONE / 2))};
}

// Returns the means of four columns from their sums and factors.
__device__ __forceinline__ unsigned band_means(const int low[2], const int high[2], const float2 by[4])
{
    unsigned bits[4];

#pragma unroll
    for (int c = 0; c < 4; c++)
        bits[c] = __float_as_uint(fmaf(__int_as_float(c < 2 ? low[c] : high[c - 2]), by[c].x, by[c].y));
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0051), __byte_perm(bits[2], bits[3], 0x0051), 0x5410);
}

// Slides a warp down its strip. Groups are numbered through all strips, `groups` in each; the last one of a strip is
// beyond the picture and holds zeros. The warp's first group is `first`. AT_EDGE: some of its groups lack neighbours,
// or lie in another strip. `ring` is the lane's place in shared memory, which no other lane reads.
template <bool AT_EDGE>
__device__ __forceinline__ void slide_bands(const unsigned char *in, unsigned char *out, int width, int height,
                                            int first, int groups, int lane, unsigned ring)
{
    const int nx = width * CHANNELS;
    const int all = (height + BAND_ROWS - 1) / BAND_ROWS * groups;
    const int left = (lane + WARP - 1) % WARP, right = (lane + 1) % WARP;
    const float2 whole = {1.0f / (BAND_ONE * K * K), 32768.5f - 8388608.0f * (1.0f / (BAND_ONE * K * K))};
    const unsigned one = gridDim.z;  // always 1, but the compiler does not know that: see `fetch`
    const unsigned char *from[2];    // the next row to read
    int top[2], x[2];
    bool writes[2];

#pragma unroll
    for (int s = 0; s < 2; s++) {
        int at = first + s * WARP + lane;
        int strip = AT_EDGE ? min(max(at, 0), all - 1) / groups : first / groups;
        x[s] = AT_EDGE && (at < 0 || at >= all) ? nx : (at - strip * groups) * BAND_GROUP;
        top[s] = strip * BAND_ROWS - RADIUS;
        from[s] = in + (long long)top[s] * nx + x[s];
        writes[s] = x[s] < nx && (s ? lane < WARP - 1 : lane > 0);
    }

    Band band[3][2];
#pragma unroll
    for (int d = 0; d < 3; d++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
            unsigned word = lane / 4 % 2 ? band_word(d - 1, 2 * half + 1) : band_word(d - 1, 2 * half);
            word = lane % 4 == lane / 8 ? word : 0;
            band[d][half] = (Band)(word * 3) << 32 | word;  // 3 * 64 is -64 in a byte
            asm volatile("" : "+l"(band[d][half]));         // kept in registers
        }
    int sums[4][2][4];  // of columns 2 half and 2 half + 1 of word j, in both halves of the warp's part
#pragma unroll
    for (int i = 0; i < 32; i++)
        sums[i / 8][i / 4 % 2][i % 4] = BAND_ZERO;

    auto request = [&](int r, unsigned to) {
#pragma unroll
        for (int s = 0; s < 2; s++) {
            bool inside = !AT_EDGE || (x[s] < nx && (unsigned)(top[s] + r) < (unsigned)height);
            const unsigned char *at = AT_EDGE ? from[s] : from[0] + s * WARP * BAND_GROUP;
            if (r < BAND_STEPS)
                copy_group(to + s * WARP * BAND_GROUP, at, inside);
        }
        from[0] += nx;
        from[1] += nx;
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    // A product needs the words of both rows and halves side by side in registers; the compiler would copy them for
    // each of six products. A multiplication by an unknown one makes it a single copy.
    auto fetch = [&](unsigned at) {
        BandRow row;
#pragma unroll
        for (int s = 0; s < 2; s++) {
            unsigned *w = row.words[s] + 1;
            asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(w[0]), "=r"(w[1]), "=r"(w[2]), "=r"(w[3])
                         : "r"(at + s * WARP * BAND_GROUP)
                         : "memory");
        }
        // The halves lie side by side: left of the high half's first lane is the low half's last lane.
        row.words[0][0] = __shfl_sync(ALL_LANES, row.words[0][4], left);
        row.words[1][0] = __shfl_sync(ALL_LANES, lane == WARP - 1 ? row.words[0][4] : row.words[1][4], left);
        row.words[0][5] = __shfl_sync(ALL_LANES, lane == 0 ? row.words[1][1] : row.words[0][1], right);
        row.words[1][5] = __shfl_sync(ALL_LANES, row.words[1][1], right);
#pragma unroll
        for (int i = 0; i < 8; i++)
            row.words[i / 4][1 + i % 4] *= one;
        return row;
    };

    unsigned now = ring, old = ring + BAND_AHEAD * BAND_ROW;
    auto next = [&](unsigned at) { return at == ring + (BAND_RING - 1) * BAND_ROW ? ring : at + BAND_ROW; };
    auto step = [&](int r, auto has_old, auto has_result) {
        asm volatile("cp.async.wait_group %0;" ::"n"(BAND_AHEAD - 1) : "memory");
        BandRow row = fetch(now), gone;
        if (has_old.value)
            gone = fetch(old);
        request(r + BAND_AHEAD, old);
        now = next(now);
        old = next(old);
#pragma unroll
        for (int word = 0; word < 6; word++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    const int d = word - j;
                    if (d < 0 || d > 2 || !in_band(d - 1, half))
                        continue;
                    if (has_old.value)
                        add_product(sums[j][half], row, gone, word, band[d][half]);
                    else
                        add_product(sums[j][half], row, word, band[d][half]);
                }
        if (!has_result.value)
            return;
#pragma unroll
        for (int s = 0; s < 2; s++) {
            int y = top[s] + r - RADIUS;
            unsigned down = AT_EDGE ? inside(y, height) : K;
            float2 by[4] = {whole, whole, whole, whole};
            unsigned words[4];

            if (down != K)
                by[0] = by[1] = by[2] = by[3] = band_factors(K * down);
#pragma unroll
            for (int j = 0; j < 4; j++)
                words[j] = band_means(sums[j][0] + 2 * s, sums[j][1] + 2 * s, by);
            if (AT_EDGE)  // the lane has the first or the last word of a row, or both
#pragma unroll 1
                for (int j = x[s] == 0 ? 0 : 3; j <= (x[s] + BAND_GROUP == nx ? 3 : 0); j += 3) {
                    int low[2], high[2];
#pragma unroll
                    for (int c = 0; c < 4; c++)
                        by[c] = band_factors(down * inside((x[s] + 4 * j + c) / CHANNELS, width));
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        low[c] = j ? sums[3][0][2 * s + c] : sums[0][0][2 * s + c];
                        high[c] = j ? sums[3][1][2 * s + c] : sums[0][1][2 * s + c];
                    }
                    unsigned word = band_means(low, high, by);
                    words[0] = j ? words[0] : word;
                    words[3] = j ? word : words[3];
                }
            // from[s] is BAND_AHEAD + 1 rows further on by now.
            long long to = from[AT_EDGE ? s : 0] - in - (long long)(BAND_AHEAD + 1 + RADIUS) * nx;
            if (writes[s] && (!AT_EDGE || y < height))
                *(uint4 *)(out + to + (AT_EDGE ? 0 : s * WARP * BAND_GROUP)) = {words[0], words[1], words[2], words[3]};
        }
    };

#pragma unroll
    for (int r = 0; r < BAND_AHEAD; r++)
        request(r, ring + r * BAND_ROW);
#pragma unroll 1
    for (int r = 0; r < 2 * RADIUS; r++)
        step(r, No(), No());
    step(2 * RADIUS, No(), Yes());
#pragma unroll 1
    for (int r = K; r < BAND_STEPS; r++)
        step(r, Yes(), Yes());
}
#endif

// Adds and subtracts whole rows by products with a band matrix, on tensor cores.
// The integer unit, which adds and unpacks in the two rungs before, then has little to do. For a radius of 3 that is
// faster; for a radius of 1 there is little to add, and it is not. What remains: rows above and below a strip are read
// again, and so many strips read and write in an order that alone takes 1.25 times a copy's time. Rows that are not a
// multiple of 16 bytes go as in pairs.
extern "C" __global__ void __launch_bounds__(BLOCK, (BAND_THREADS + BLOCK - 1) / BLOCK)
    blur_bands(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
#if __CUDA_ARCH__ >= 800
    extern __shared__ uint4 memory[];
    if (width * CHANNELS % BAND_GROUP) {
        blur_by_pairs(in, out, width, height);
        return;
    }
    int thread = threadIdx.y * BDIMX + threadIdx.x;
    if (sizeof(T) > 1 || (BLOCK % WARP && thread / WARP >= WARPS))
        return;
    int warp = __shfl_sync(ALL_LANES, thread / WARP, 0);
    int nx = width * CHANNELS;
    int groups = nx / BAND_GROUP + 1;
    int first = (blockIdx.x * WARPS + warp) * (2 * WARP - BAND_LENT) - 1;
    int top = first / groups * BAND_ROWS - RADIUS, column = first % groups;
    int lane = thread % WARP;
    unsigned ring = (unsigned)__cvta_generic_to_shared(memory) + warp * BAND_RING * BAND_ROW + lane * BAND_GROUP;
    const unsigned char *from = (const unsigned char *)in;
    unsigned char *to = (unsigned char *)out;

    if (column > 0 && (column + 2 * WARP) * BAND_GROUP < nx && top >= 0 && top + BAND_STEPS <= height)
        slide_bands<false>(from, to, width, height, first, groups, lane, ring);
    else
        slide_bands<true>(from, to, width, height, first, groups, lane, ring);
#endif
}
#endif
