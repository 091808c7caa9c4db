// Box blur: out = mean of the (2 RADIUS + 1)^2 neighbours of an element that lie inside the picture. At a corner
// these are 4 of 9 for a radius of 1, at an edge 6.
//
// A picture has `height` rows of `width` pixels of CHANNELS values each (red, green, blue side by side), of type T. A
// row is nx = width * CHANNELS elements; the neighbour to the right of an element is CHANNELS further on.
// Each element is read once and written once, 2 * width * height * CHANNELS * sizeof(T) bytes, although each is needed
// (2 RADIUS + 1)^2 times: the ladder is about where they wait for their next use, in the cache, in shared memory or
// in registers, and about adding up rows and columns one after the other instead of all neighbours at once.
//
// Sums are of type S: float in float; whole numbers for unsigned char, whose mean is rounded to the nearest one.
// RADIUS, CHANNELS and WIDE are fixed at compile time, BDIMX and BDIMY are the threads of a block.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 16
#endif
#ifndef BDIMY
#define BDIMY 16
#endif
#ifndef RADIUS
#define RADIUS 1
#endif
#ifndef CHANNELS
#define CHANNELS 1
#endif

template <typename E> struct Types { typedef E Sum; };
template <> struct Types<unsigned char> { typedef unsigned Sum; };
typedef Types<T>::Sum S;

#define K (2 * RADIUS + 1)         // neighbours in a row or column, the element itself among them
#define REACH (RADIUS * CHANNELS)  // elements from the middle to the farthest neighbour in a row
#define BLOCK (BDIMX * BDIMY)      // threads in a block

// A constant count makes its reciprocal a constant; a division would branch for the few operands that need care.
__device__ __forceinline__ float mean(float sum, unsigned count) { return sum * (1.0f / count); }
__device__ __forceinline__ unsigned mean(unsigned sum, unsigned count) { return (sum + count / 2) / count; }

// Returns how many neighbours along one axis lie inside, for position `at` of `length`.
__device__ __forceinline__ unsigned inside(unsigned at, unsigned length)
{
    return min(at, RADIUS) + min(length - 1 - at, RADIUS) + 1;
}

// Gives each thread one element, which reads its neighbours one by one and asks of each whether it is inside.
// The neighbours of a warp are the same but for the outermost, so most loads find them in the cache; but there are
// K * K loads and as many tests for one result.
extern "C" __global__ void blur_naive(const T *in, T *out, int width, int height)
{
    int nx = width * CHANNELS;
    int x = blockIdx.x * BDIMX + threadIdx.x;
    int y = blockIdx.y * BDIMY + threadIdx.y;

    if (x < nx && y < height) {
        S sum = 0;
        unsigned count = 0;
        for (int dy = -RADIUS; dy <= RADIUS; dy++)
            for (int dx = -REACH; dx <= REACH; dx += CHANNELS)
                if (x + dx >= 0 && x + dx < nx && y + dy >= 0 && y + dy < height) {
                    sum += in[(size_t)(y + dy) * nx + x + dx];
                    count++;
                }
        out[(size_t)y * nx + x] = mean(sum, count);
    }
}

#define TILE_X (BDIMX + 2 * REACH)
#define TILE_Y (BDIMY + 2 * RADIUS)

// Fills the tile with the block's elements and the halo around them, zeros where the picture has ended.
__device__ __forceinline__ void read_tile(T *tile, const T *in, int nx, int ny)
{
    int x0 = blockIdx.x * BDIMX - REACH, y0 = blockIdx.y * BDIMY - RADIUS;

    for (int i = threadIdx.y * BDIMX + threadIdx.x; i < TILE_X * TILE_Y; i += BLOCK) {
        int x = x0 + i % TILE_X, y = y0 + i / TILE_X;
        tile[i] = x >= 0 && x < nx && y >= 0 && y < ny ? in[(size_t)y * nx + x] : (T)0;
    }
}

// Reads the block's elements and a halo of RADIUS around them into shared memory first.
// Each element comes from global memory once a block instead of K * K times, and with zeros in the halo no neighbour
// is tested. Where the cache serves neighbours as fast, as on an H200, that wins nothing for a small radius: there
// is a barrier more, and the halo, and still K * K loads for one result.
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
// K + K loads instead of K * K, for a second array in shared memory and one more barrier: a gain from a radius of 2
// or 3 on. What remains: the halo, the barriers, and shared memory, through which every element passes several times.
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
// rows stay in its registers: the sum of a new row takes the place of the oldest. That takes K * COLUMNS registers,
// so the host refuses these rungs for large radii, and they are then left out here.
#ifndef TURNS
#define TURNS 2  // of the ring of K rows: more are fewer threads, which keep the memory less busy
#endif
#define ROWS (TURNS * K)
#ifndef WIDE
#define WIDE 4  // columns of a thread in the last rung: 4 floats or 8 bytes
#endif
#define MAX_SUMS 60
#define MAX_K 25

template <int COLUMNS> struct __align__(COLUMNS * sizeof(T)) Columns { T at[COLUMNS]; };

// Adds up the neighbours along row y of COLUMNS elements from x on. INSIDE: none of them is outside the picture.
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
        for (int r = 0; r < K; r++) {  // unrolled, so that every place in the ring is a register of its own
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
// A new row costs K loads, which the cache serves, and no barrier; shared memory is not needed. The halo above and
// below shrinks to RADIUS in ROWS. What remains: every access moves sizeof(T) bytes.
extern "C" __global__ void blur_slide(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    int x = blockIdx.x * BDIMX + threadIdx.x;
    int y0 = (blockIdx.y * BDIMY + threadIdx.y) * ROWS;

    slide_down<1>(in, out, width, height, x, y0);
}
#endif

#if K * WIDE <= MAX_SUMS
// Gives each thread WIDE columns: 16 bytes an access for float, 8 for unsigned char.
// Three wide loads hold a row's neighbours of four columns, for four results and a radius up to 4. What remains is
// the memory. Rows that do not start at a multiple of WIDE elements are taken column by column, as in slide.
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

// The last rung is for bytes: a word holds the sums of two columns, c and c + 2, as two numbers of 16 bits.
#define PAIRED 16                    // columns of a thread, as many as 16 bytes hold
#define EDGE ((REACH + 3) / 4)       // words on each side that hold the neighbours beyond these columns
#define WORDS (PAIRED / 4 + 2 * EDGE)

// Returns elements e and e + 2 of a row whose words are unpacked into their even and odd bytes.
__device__ __forceinline__ unsigned pair(const unsigned even[WORDS], const unsigned odd[WORDS], int e)
{
    const unsigned *from = e % 2 ? odd : even;
    return e / 2 % 2 ? __funnelshift_r(from[e / 4], from[e / 4 + 1], 16) : from[e / 4];
}

// Loads the words of PAIRED columns of row y from x on, and of their neighbours.
__device__ __forceinline__ void read_words(unsigned word[WORDS], const T *in, int nx, int x, int y)
{
    const unsigned *row = (const unsigned *)(in + (size_t)y * nx + x);
    const uint4 middle = *(const uint4 *)row;

    word[EDGE] = middle.x, word[EDGE + 1] = middle.y, word[EDGE + 2] = middle.z, word[EDGE + 3] = middle.w;
#pragma unroll
    for (int w = 0; w < EDGE; w++) {
        word[w] = row[w - EDGE];
        word[EDGE + PAIRED / 4 + w] = row[PAIRED / 4 + w];
    }
}

// Adds up the neighbours along a row.
__device__ __forceinline__ void add_pairs(unsigned sums[PAIRED / 2], const unsigned word[WORDS])
{
    unsigned even[WORDS], odd[WORDS];

#pragma unroll
    for (int w = 0; w < WORDS; w++) {
        even[w] = word[w] & 0x00FF00FF;
        odd[w] = word[w] >> 8 & 0x00FF00FF;
    }
#pragma unroll
    for (int i = 0; i < PAIRED / 2; i++) {
        int e = (EDGE + i / 2) * 4 + i % 2;
        sums[i] = pair(even, odd, e - REACH);
#pragma unroll
        for (int dx = CHANNELS - REACH; dx <= REACH; dx += CHANNELS)
            sums[i] += pair(even, odd, e + dx);
    }
}

// Returns the means of four columns, whose sums are the halves of two words. Multiplied by 2^24 / K^2, rounded up, a
// sum has its quotient in the highest byte: exactly, up to a K of 16.
__device__ __forceinline__ unsigned four_means(unsigned even, unsigned odd)
{
    const unsigned inverse = (1 << 24) / (K * K) + 1, half = K * K / 2 * 0x00010001;

    even += half;
    odd += half;
    unsigned first = __byte_perm((even & 0xFFFF) * inverse, (odd & 0xFFFF) * inverse, 0x0073);
    unsigned last = __byte_perm((even >> 16) * inverse, (odd >> 16) * inverse, 0x0073);
    return __byte_perm(first, last, 0x5410);
}

__device__ __forceinline__ void slide_pairs(const T *in, T *out, int nx, int x, int y0)
{
    unsigned ring[K][PAIRED / 2], sums[PAIRED / 2] = {}, word[K][WORDS];

#pragma unroll
    for (int r = 0; r < K - 1; r++)
        read_words(word[r], in, nx, x, y0 - RADIUS + r);
#pragma unroll
    for (int r = 0; r < K - 1; r++) {
        add_pairs(ring[r], word[r]);
#pragma unroll
        for (int i = 0; i < PAIRED / 2; i++)
            sums[i] += ring[r][i];
    }
    for (int done = 0; done < ROWS; done += K) {
#pragma unroll
        for (int r = 0; r < K; r++)  // K rows are under way at once
            read_words(word[r], in, nx, x, y0 + done + r + RADIUS);
#pragma unroll
        for (int r = 0; r < K; r++) {
            int y = y0 + done + r;
            add_pairs(ring[(r + K - 1) % K], word[r]);
#pragma unroll
            for (int i = 0; i < PAIRED / 2; i++)
                sums[i] += ring[(r + K - 1) % K][i];
            *(uint4 *)(out + (size_t)y * nx + x) =
                make_uint4(four_means(sums[0], sums[1]), four_means(sums[2], sums[3]),
                           four_means(sums[4], sums[5]), four_means(sums[6], sums[7]));
#pragma unroll
            for (int i = 0; i < PAIRED / 2; i++)
                sums[i] -= ring[r][i];  // whole numbers: what was added can be taken away again
        }
    }
}

#if K * PAIRED / 2 <= MAX_SUMS
// Adds two bytes with one instruction: a word holds two sums of 16 bits, and no sum of a small radius exceeds them.
// For bytes it was the adding that kept the memory waiting. It also makes room for 16 columns a thread, 16 bytes an
// access. What remains is the memory. Blocks at the edge of the picture and ragged rows are taken as in vector.
extern "C" __global__ void blur_pairs(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    int nx = width * CHANNELS;
    int x = (blockIdx.x * BDIMX + threadIdx.x) * PAIRED;
    int y0 = (blockIdx.y * BDIMY + threadIdx.y) * ROWS;

    if (nx % PAIRED != 0)
        for (int c = 0; c < PAIRED; c++)
            slide_down<1>(in, out, width, height, x - threadIdx.x * (PAIRED - 1) + c * BDIMX, y0);
    else if (x >= PAIRED && x + 2 * PAIRED <= nx && y0 >= RADIUS && y0 + ROWS + RADIUS <= height)
        slide_pairs(in, out, nx, x, y0);
    else
        for (int c = 0; c < PAIRED; c += WIDE)
            slide_down<WIDE>(in, out, width, height, x + c, y0);
}
#endif
