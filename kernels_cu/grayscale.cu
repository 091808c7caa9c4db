// Colour to grey: grey = 0.21 r + 0.72 g + 0.07 b for each pixel, rounded to the nearest whole number.
//
// rgb holds `height` rows of `width` pixels, three bytes each, red, green, blue; grey holds one byte a pixel. Rows
// follow each other without a gap, so a picture is also one long row of width * height pixels. Each pixel is read
// once and written once, 4 bytes. That is little to fetch and much to do: a pixel has three conversions to float and
// one back, which a multiprocessor does at a fraction of the rate of its additions.
//
// The first kernel has a grid over the picture, with 16 x 16 pixels a block. A picture of 62 rows by 76 columns has
// four kinds of blocks: complete ones, and ones beyond its right side, its lower side, or both. T is unsigned char.
// BDIMX and BDIMY are the threads of a block. Offsets are size_t because a picture may have over 2^32 bytes.

#ifndef T
#define T unsigned char
#endif
#ifndef BDIMX
#define BDIMX 16
#endif
#ifndef BDIMY
#define BDIMY 16
#endif

#define BLOCK (BDIMX * BDIMY)  // threads in a block

__device__ __forceinline__ unsigned weigh(unsigned r, unsigned g, unsigned b)
{
    return 0.21f * r + 0.72f * g + 0.07f * b + 0.5f;
}

// Gives each thread one pixel: three loads of a byte and a store of one.
// Neighbouring threads have neighbouring pixels, and all bytes that are fetched are used. What remains: a warp
// touches 96 bytes in three loads, so the memory waits for instructions.
extern "C" __global__ void grayscale_naive(const T *rgb, T *grey, int width, int height)
{
    unsigned x = blockIdx.x * BDIMX + threadIdx.x;
    unsigned y = blockIdx.y * BDIMY + threadIdx.y;

    if (x < width && y < height) {
        size_t i = (size_t)y * width + x;
        grey[i] = weigh(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
    }
}

// From here a thread takes several neighbours of the one long row of n pixels.
#define FEW 4    // pixels of a thread: three words of 4 bytes
#define MANY 16  // three vectors of 16 bytes

__device__ __forceinline__ size_t first_pixel(int pixels)
{
    return ((size_t)blockIdx.x * BLOCK + threadIdx.y * BDIMX + threadIdx.x) * pixels;
}

__device__ __forceinline__ unsigned byte(unsigned word, int at) { return word >> 8 * at & 0xFF; }

// The last pixels of a picture, one at a time.
__device__ __forceinline__ void weigh_rest(const T *rgb, T *grey, size_t i, size_t step, size_t n)
{
    for (; i < n; i += step)
        grey[i] = weigh(rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]);
}

// Gives each thread four pixels: three words of 4 bytes hold them, one word the result.
// Four loads and stores do the work of sixteen. What remains: four pixels still need sixteen conversions between
// bytes and floats, which take nearly as long as the memory does.
extern "C" __global__ void grayscale_words(const T *rgb, T *grey, int width, int height)
{
    size_t n = (size_t)width * height;
    size_t i = first_pixel(FEW);

    if (i + FEW <= n) {
        const unsigned *w = (const unsigned *)(rgb + 3 * i);
        unsigned a = w[0], b = w[1], c = w[2];
        unsigned g0 = weigh(byte(a, 0), byte(a, 1), byte(a, 2));
        unsigned g1 = weigh(byte(a, 3), byte(b, 0), byte(b, 1));
        unsigned g2 = weigh(byte(b, 2), byte(b, 3), byte(c, 0));
        unsigned g3 = weigh(byte(c, 1), byte(c, 2), byte(c, 3));
        *(unsigned *)(grey + i) = g0 | g1 << 8 | g2 << 16 | g3 << 24;
    } else
        weigh_rest(rgb, grey, i, 1, n);
}

#define WEIGHTS (21 | 72 << 8 | 7 << 16)  // in hundredths; the fourth byte has the weight 0

// Returns the greys of the four pixels in three words. __dp4a multiplies and adds all bytes of two words at once.
__device__ __forceinline__ unsigned weigh_four(unsigned a, unsigned b, unsigned c)
{
    unsigned g0 = __dp4a(a, (unsigned)WEIGHTS, 50u) / 100;
    unsigned g1 = __dp4a(__funnelshift_r(a, b, 24), (unsigned)WEIGHTS, 50u) / 100;
    unsigned g2 = __dp4a(__funnelshift_r(b, c, 16), (unsigned)WEIGHTS, 50u) / 100;
    unsigned g3 = __dp4a(c >> 8, (unsigned)WEIGHTS, 50u) / 100;
    return g0 | g1 << 8 | g2 << 16 | g3 << 24;
}

// Weighs in whole hundredths: one instruction multiplies and adds the bytes of a pixel, and nothing is converted.
// The sum is exact, and so is its rounding. What remains: a thread has 12 bytes under way, a quarter of what the
// memory needs.
extern "C" __global__ void grayscale_dot(const T *rgb, T *grey, int width, int height)
{
    size_t n = (size_t)width * height;
    size_t i = first_pixel(FEW);

    if (i + FEW <= n) {
        const unsigned *w = (const unsigned *)(rgb + 3 * i);
        *(unsigned *)(grey + i) = weigh_four(w[0], w[1], w[2]);
    } else
        weigh_rest(rgb, grey, i, 1, n);
}

union Pixels { uint4 all[3]; unsigned at[12]; };  // 16 pixels

__device__ __forceinline__ uint4 weigh_sixteen(const Pixels &p)
{
    return make_uint4(weigh_four(p.at[0], p.at[1], p.at[2]), weigh_four(p.at[3], p.at[4], p.at[5]),
                      weigh_four(p.at[6], p.at[7], p.at[8]), weigh_four(p.at[9], p.at[10], p.at[11]));
}

// Gives each thread sixteen pixels: 16 bytes an access, three in and one out.
// 48 bytes a thread are under way, and what remains is the memory. The loads of a warp lie 48 bytes apart, so each of
// the three touches 32 of the 48 sectors of the warp's 1536 bytes and uses half of each, 16 bytes. The L1 cache keeps
// the other halves: staging the pixels in shared memory, with neighbouring loads, was measured to win nothing.
extern "C" __global__ void grayscale_vector(const T *rgb, T *grey, int width, int height)
{
    size_t n = (size_t)width * height;
    size_t i = first_pixel(MANY);

    if (i + MANY <= n) {
        const uint4 *v = (const uint4 *)(rgb + 3 * i);
        Pixels p = {v[0], v[1], v[2]};
        *(uint4 *)(grey + i) = weigh_sixteen(p);
    } else
        weigh_rest(rgb, grey, i, 1, n);
}
