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

// Returns the mean of the neighbours of an element, each of which is asked whether it is inside.
__device__ __forceinline__ T mean_around(const T *in, int nx, int ny, int x, int y)
{
    S sum = 0;
    unsigned count = 0;

    for (int dy = -RADIUS; dy <= RADIUS; dy++)
        for (int dx = -REACH; dx <= REACH; dx += CHANNELS)
            if (x + dx >= 0 && x + dx < nx && y + dy >= 0 && y + dy < ny) {
                sum += in[(size_t)(y + dy) * nx + x + dx];
                count++;
            }
    return mean(sum, count);
}

// Gives each thread one element, which reads its neighbours one by one and asks of each whether it is inside.
// The neighbours of a warp are the same but for the outermost, so most loads find them in the cache. What remains:
// there are K * K loads and as many tests for one result.
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
// is tested. Where the cache serves neighbours as fast, as on an H200, that wins nothing for a small radius. What
// remains: a barrier more, and the halo, and K * K loads for one result.
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
#define WIDE 4  // columns of a thread in blur_vector: 4 floats or 8 bytes
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
// Three wide loads hold a row's neighbours of four columns, for four results and a radius up to 4. What remains: rows
// that do not start at a multiple of WIDE elements are taken column by column, as in slide, and bytes are added one by
// one.
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

#define MAX_STRIP 7

#if RADIUS <= MAX_STRIP
// The next rung gives a warp a strip of the picture, a lane the same BYTES bytes of each row. The warp slides down:
//
//     row y - 1   | lane 0 | lane 1 | lane 2 | ... | lane 31 |     a lane has SPAN columns: 4 floats or 16 bytes
//     row y       | lane 0 | lane 1 | lane 2 | ... | lane 31 |     it adds up neighbours along the row, for each of its
//     row y + 1   | lane 0 | lane 1 | lane 2 | ... | lane 31 |     columns, with those that it gets from other lanes by
//                   lends    writes   writes         lends         shuffles: the first and last SIDE lanes only lend
//
// The sums of the last K rows stay in a ring of registers, as in slide; for bytes the ring holds running totals, whose
// difference is the sum: 5, 5 + 7, 5 + 7 + 2, ... For a radius of 1 and float that is 30 lanes of 4 columns that write,
// and 3 turns of a ring of 3 rows: strips of 120 columns by 7 rows.
//
// If rows are not a multiple of BYTES long, they start anywhere. A lane then reads the aligned BYTES bytes around, the
// warp shifts them into place (`shifted`), and shifts the results back before they are written aligned.
// The edge of the picture, where neighbours are missing, has blocks of its own, so that the strips test nothing but
// where they may write. They are the first, since each of their loads is waited for.
#ifndef BYTES
#define BYTES (sizeof(T) == 1 && RADIUS > 2 ? 8 : 16)  // of a row in a lane
#endif
#ifndef STRIP_TURNS
#define STRIP_TURNS (sizeof(T) == 1 ? 4 : 3)  // turns of the ring in which a warp slides down
#endif
#define WARP 32
#define WARPS (BLOCK / WARP)
#define WORDS (BYTES / 4)
#define SPAN (BYTES / (int)sizeof(T))            // columns of a lane
#define SIDE ((REACH + SPAN - 1) / SPAN)         // lanes on each side that only lend their columns to neighbours
#define NEAR ((REACH * (int)sizeof(T) + 3) / 4)  // words on each side of a lane's that hold neighbours
#define TURN (sizeof(T) == 1 ? K + 1 : K)        // rows that a lane keeps sums of, in a ring
#define AHEAD (K < 10 ? (int)TURN : 1)           // rows under way to a lane
#define STRIP_ROWS (STRIP_TURNS * (int)TURN - (K - 1))
#define MARGIN (REACH + SPAN)                    // columns at each end of a row that the strips may leave out
#define ALL_LANES 0xFFFFFFFF
#define BORDER_ROWS (RADIUS > 1 ? 8 : 4)         // of a column at the edge that a thread slides down
#ifndef BORDER_BLOCKS
#define BORDER_BLOCKS 264                        // the first ones, for the edge: the host's choice
#endif

struct __align__(BYTES) Words { unsigned at[WORDS]; };

// Returns as many words as a lane has, from `by` elements after its first: its own and those of the next lane. Whole
// words move in steps that are powers of two, since registers cannot be indexed; a rest of bytes by a funnel shift.
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

// Returns a word with ones in the bytes that are neighbours of a column, both counted from a lane's first. With a
// radius of 1, column 2 has the neighbours 1, 2 and 3: word 0 is 0x01010100, and the other words are 0.
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

// Adds row r of a turn, whose words and neighbours `near` holds, and returns the sums over the last K rows.
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

// The same for bytes: four are multiplied by ones or zeros and added with one instruction. The ring holds totals of
// all rows so far, whose difference is exact in whole numbers; a new one finds the place that the last one freed.
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

__device__ __forceinline__ Words means(const float sums[SPAN])
{
    Words result;
#pragma unroll
    for (int c = 0; c < SPAN; c++)
        result.at[c] = __float_as_uint(mean(sums[c], K * K));
    return result;
}

// Multiplied by 2^24 / K^2, rounded up, a sum has its quotient in the highest byte: exactly, up to a K of 16.
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

// A warp's strip: where a lane's columns begin, the rows that it writes, and whether this lane does.
struct Strip {
    int x, begin, end;
    bool ragged, writes;
};

// Slides a warp down its strip. ALIGNED: every row begins at a multiple of BYTES.
template <bool ALIGNED>
__device__ __forceinline__ void slide_warp(const T *in, T *out, int nx, Strip strip)
{
    const int x = strip.x, begin = strip.begin, end = strip.end;
    const int last = end + RADIUS - 1;
    const int from = min(max(x, 0), (nx - 1) / SPAN * SPAN + SPAN);  // lanes beyond the row read in it, too
    S ring[TURN][SPAN] = {};
    Words ahead[AHEAD];  // rows under way

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

// Fills in what the strips leave out: the first and last rows and, at both ends of the others, MARGIN columns but for
// those that a strip writes. Threads slide down those columns, BORDER_ROWS rows each: K loads an element, not K * K. A
// narrow picture is all edge. Thread `at` of `threads`.
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

// Returns the strip of `rows` rows that a thread's warp has; it is empty if begin is not less than end.
__device__ __forceinline__ Strip strip_of(int thread, int nx, int height, int rows)
{
    // The same in all lanes: the shuffle says so to the compiler, which then expects no lane to go another way.
    int warp = (blockIdx.x - BORDER_BLOCKS) * WARPS + __shfl_sync(ALL_LANES, thread / WARP, 0);
    int ragged = nx % SPAN ? 1 : 0;
    int writers = WARP - 2 * SIDE - 2 * ragged;  // each shift leaves the last lane without its right half
    int strips = ((nx + SPAN - 1) / SPAN + ragged + writers - 1) / writers;
    int lane = thread % WARP - SIDE;
    int x = (warp % strips * writers + lane - ragged) * SPAN;  // results are shifted to the right
    int begin = warp / strips * rows + RADIUS;
    int end = min(begin + rows, height - RADIUS - 1);  // groups of the last row may end beyond the picture
    return {x, begin, end, ragged != 0, lane >= 0 && lane < writers};
}

// Does what blur_strip does, whose blocks these are.
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

// Gives each warp a strip, whose lanes read a row once, BYTES each, and get their neighbours' columns by shuffles.
// Shuffles also move ragged rows into place between aligned reads and writes, four bytes are added with one
// instruction, and the next rows are under way meanwhile. What remains: warps side by side drift apart, so that the
// memory serves many rows at once, and the longer a strip, the more of them: a long one gains nothing.
extern "C" __global__ void blur_strip(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    blur_by_strips(in, out, width, height);
}

// The next rung is for bytes alone. It adds the other way round, down the columns first, so that a register can hold the
// sums of two columns all the way. With b0 to b3 the bytes of a word, each added up over K rows:
//
//     odd     b1 | b3 << 16                                   the words' odd bytes, 16 bits of room for each
//     whole   b0 + (b1 << 8) + (b2 << 16) + (b3 << 24)        the words as they are: bytes run over into the next
//     even    b0 | b2 << 16  =  whole - (odd << 8)            what ran over is gone again
//
// A row that comes is added and one that leaves is taken off, which is exact in whole numbers. Then neighbours along the
// row are added, from other lanes by shuffles, and only for rows that are written: the rows above and below a strip cost
// little more than their loads.
#ifndef PAIR_ROWS
#define PAIR_ROWS (RADIUS > 1 ? 14 : 10)  // that a warp writes in a strip
#endif
#ifndef PAIR_AHEAD
#define PAIR_AHEAD (RADIUS > 1 ? 4 : 6)  // rows under way to a lane; the host has 3 for ragged rows
#endif
#define PAIR_RING (K + PAIR_AHEAD)

// Returns a * b + c for two numbers of half precision in each register.
__device__ __forceinline__ unsigned fma_halves(unsigned a, unsigned b, unsigned c)
{
    unsigned d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}

// Returns the means of two columns, each in the low byte of a half, for a K of 3. A whole number up to 2047 is the bit
// pattern of itself times 2^-24 in half precision. The sum of six neighbours is one, that of all nine is not, so they
// come in two parts. Scaled by 2^15 and less 2.25, which is 1152 / 512, 11 bits hold every sum exactly. Times 56.875,
// which is 512 / 9 but for 1 / 4096 of it, plus 1152, it is the mean and 1024, rounded to the nearest: the error stays
// under 1 / 32, and a ninth is never nearer to a half than 1 / 18.
__device__ __forceinline__ unsigned means_of_nine(unsigned six, unsigned three)
{
    unsigned part = fma_halves(six, 0x78007800, 0xC080C080);
    return fma_halves(fma_halves(three, 0x78007800, part), 0x531C531C, 0x64806480);
}

// Returns what `means_of_pair` multiplies a sum of `count` elements by.
__device__ __forceinline__ float share(unsigned count) { return __fdividef(0x1.00008p126f, count); }

// Returns the means of two columns for any K, from their sums in the halves. A whole number is the bit pattern of itself
// times 2^-149 as a float. Times 2^126 / count, plus 1, it has the mean as the last bits, rounded to the nearest. To be
// rounded up, a half is made more by 2^-17 of it: a mean of 225 or fewer bytes that is not a half is 1 / 450 from one.
__device__ __forceinline__ unsigned means_of_pair(unsigned sums, float lower, float upper)
{
    unsigned low = __float_as_uint(__fmaf_ieee_rn(__uint_as_float(sums & 0xFFFF), lower, 1));
    unsigned high = __float_as_uint(__fmaf_ieee_rn(__uint_as_float(sums >> 16), upper, 1));
    return __byte_perm(low, high, 0x0400);
}

// Where words of a lane have columns without all neighbours: a bit for each such word, the lane's first column, and
// the rows inside of a sum.
struct Edge {
    unsigned words;
    int x, width;
    unsigned down;
};

// Adds neighbours along the row to the sums over K rows, and returns the means. AT_EDGE: some may not have all.
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
    for (int w = 0; w < NEAR; w++) {  // a word further on, the nearest column is 4 w + 1 away, the next 4 w + 2
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
        // Side by side, they add up the same but for the first neighbour of the one and the last of the other.
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

// Returns what `shifted` does, for bytes. `by` is the same in all lanes, so the warp goes one of WORDS ways together,
// which it finds by halves: fewer instructions than to choose each word. Way FIRST skips as many words; COUNT are left.
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
    Words ring[PAIR_RING] = {};  // the K rows that the sums hold, and those under way

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

// Does what blur_pairs does, whose blocks these are.
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

// Keeps the sums of two columns in a register.
// That takes two thirds of strip's registers, so that half as many warps again run, and strips may be shorter for as
// many instructions. It pays for a radius of 1; for 3, strip is as fast. What remains: a warp reads its rows one after
// the other, the edge takes room from the strips, and while the last strips run alone the memory has little to do.
// Still shorter strips end sooner, but read too many rows twice.
extern "C" __global__ void blur_pairs(const T *__restrict__ in, T *__restrict__ out, int width, int height)
{
    blur_by_pairs(in, out, width, height);
}

#define MOST_REACH 4

#if REACH <= MOST_REACH
// The next rung, for bytes again, has the tensor cores add. The sums along a row are the row times a matrix with ones
// in a band. For a radius of 1 and six columns:
//
//                          | 1 1 . . . . |
//                          | 1 1 1 . . . |
//     | 5 7 2 9 4 6 |  x   | . 1 1 1 . . |   =   | 12 14 18 15 19 10 |
//                          | . . 1 1 1 . |
//                          | . . . 1 1 1 |
//                          | . . . . 1 1 |
//
// A product is added to sums that are there, so it also slides down: sums += new row x band - old row x band. That is
// one instruction, mma.m16n8k32, whose 32 are 16 bytes of the new row and 16 of the old one. No byte is unpacked, and
// sums of whole numbers are exact.
//
// Lane 4 g + t of a warp holds four bytes of rows g and g + 8 of the left matrix, and gets two columns of those rows of
// the product. They need not be rows of the picture: here, row g is what the lanes 4 g to 4 g + 3 have of one row of
// the picture, 16 bytes each, and row g + 8 what they have 512 bytes further on. So a lane loads 16 bytes at a time,
// and its sums come where it writes them. A product takes the lanes' words of one place, 0 to 3, and the band has ones
// where both are of the same lane. The words before and after a lane's own, -1 and 4, come by shuffles:
//
//     words of a lane     | -1 | 0 | 1 | 2 | 3 | 4 |     two columns of word j add up what words j - 1, j and j + 1
//                                                        have in the band: at most three products
//
// The ones are 64, and sums begin with the bits of 2^23: what stands there is then the float 2^23 + 64 sum, of which
// one FFMA makes 2^15 + mean + 1/2, and the whole part of the mean is that float's second byte.
#ifndef BAND_ROWS
#define BAND_ROWS 10  // that a warp writes in a strip
#endif
#ifndef BAND_AHEAD
#define BAND_AHEAD 5  // rows under way to a warp
#endif
#define BAND_GROUP 16                      // bytes that a lane has in either half of a warp's part of a row
#define BAND_LENT 2                        // groups of a warp's 64 that only lend their columns to neighbours
#define BAND_ROW (2 * WARP * BAND_GROUP)   // bytes of a row in a warp
#define BAND_RING (K + BAND_AHEAD)         // rows in shared memory: those in the sums, and those under way
#define BAND_STEPS (BAND_ROWS + 2 * RADIUS)
#define BAND_THREADS 512                   // of an SM, whose registers suffice for no more
#define BAND_ONE 64
#define BAND_ZERO 0x4B000000               // 2^23 in float

#if __CUDA_ARCH__ >= 800
struct Yes { static constexpr bool value = true; };
struct No { static constexpr bool value = false; };

// Four bytes of the band in the low half, for the new row, and the same times -1 in the high half, for the old one.
typedef unsigned long long Band;

// A lane's words of a row, in both halves of the warp's part, from -1 on.
struct BandRow { unsigned words[2][6]; };

// Returns a word of the band: what its bytes are to the sum of a column, both counted from a word's first byte.
__device__ constexpr unsigned band_word(int word, int column)
{
    return ones(word, column) * BAND_ONE;
}

// Returns whether a word, counted from that of columns 2 half and 2 half + 1, has a neighbour of either.
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

// Starts the copy of a group to shared memory, with no register on the way; zeros where it is not inside.
__device__ __forceinline__ void copy_group(unsigned to, const unsigned char *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(inside ? 16 : 0) : "memory");
}

// Returns 1 / (64 count), and what makes the second byte of 2^23 + 64 sum a mean. That a whole number is cut off where
// the mean and 1/2 are one is the case for even counts alone, which get half of the least distance, 1 / count, on top.
__device__ __forceinline__ float2 band_factors(unsigned count)
{
    float by = __fdividef(1.0f / BAND_ONE, count);
    return {by, fmaf(-8388608.0f, by, count % 2 ? 32768.5f : 32768.5f + by * (BAND_ONE / 2))};
}

// Returns the means of four columns, by the factors of each.
__device__ __forceinline__ unsigned band_means(const int low[2], const int high[2], const float2 by[4])
{
    unsigned bits[4];

#pragma unroll
    for (int c = 0; c < 4; c++)
        bits[c] = __float_as_uint(fmaf(__int_as_float(c < 2 ? low[c] : high[c - 2]), by[c].x, by[c].y));
    return __byte_perm(__byte_perm(bits[0], bits[1], 0x0051), __byte_perm(bits[2], bits[3], 0x0051), 0x5410);
}

// Slides a warp down its strip. Groups are counted through all strips, `groups` in each, the last of which is beyond
// the picture and holds zeros; the warp's begin with `first`. AT_EDGE: some of them lack neighbours on a side, or
// they lie in two strips. `ring` is the lane's place in shared memory, which no other lane reads.
template <bool AT_EDGE>
__device__ __forceinline__ void slide_bands(const unsigned char *in, unsigned char *out, int width, int height,
                                            int first, int groups, int lane, unsigned ring)
{
    const int nx = width * CHANNELS;
    const int all = (height + BAND_ROWS - 1) / BAND_ROWS * groups;
    const int left = (lane + WARP - 1) % WARP, right = (lane + 1) % WARP;
    const float2 whole = {1.0f / (BAND_ONE * K * K), 32768.5f - 8388608.0f * (1.0f / (BAND_ONE * K * K))};
    const unsigned one = gridDim.z;  // which the compiler does not know, see `fetch`
    const unsigned char *from[2];    // where the next row is read
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
    int sums[4][2][4];  // of the columns 2 half and 2 half + 1 of word j, in both halves of the warp's part
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
    // A product wants the words of both rows and halves side by side in registers, and would copy them for each of six
    // products. A multiplication by one that the compiler does not know makes that one copy.
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
        // The halves lie side by side: what is left of the high half's first lane is the low half's last one.
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
            if (AT_EDGE)  // a lane with the first or the last word of a row, or both
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
            // Rows are read at from[s], which is BAND_AHEAD + 1 further on by now.
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
// faster than they are; for a radius of 1, where there is little to add, it is not. What remains: the rows above and
// below a strip that are read again, and the order in which so many strips read and write, which takes the time of a
// copy and a quarter on its own. Rows that are not a multiple of 16 bytes go as in pairs.
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

// The last rung requests all rows of a strip at once, and gives the warps of a block strips below each other. For a radius
// of 3:
//
//     warp 0   | rows 0 to 3  |     reads rows -3 to 6
//     warp 1   | rows 4 to 7  |     reads rows  1 to 10, for most of which warps 0 and 2 ask at the same time: they come
//     warp 2   | rows 8 to 11 |     from the L2 cache once, and then from that of the SM
//
// So strips can be short with little more traffic, no row waits for the one before it, and warps begin and end in the
// order in which the picture lies in memory. Strips that lie side by side are counted through the whole picture, with
// SIDE groups of zeros after each row of blocks: a warp may have the end of one such row and the beginning of the next.
// Where next to nothing is wasted by it (STACK_APART), each such row begins with a strip of its own instead.
// A warp without edge elements tests nothing. A warp with some is hardly slower, since all columns of a row but the
// outermost have the same factor: the last rows of the picture come last, and the whole GPU would wait for them.
#ifndef STACK_ROWS  // that a warp writes in a strip; the host has 5 for ragged rows
#define STACK_ROWS (sizeof(T) > 1 ? RADIUS > 1 ? 4 : 2 : RADIUS > 3 ? 5 : 4)
#endif
#ifndef STACK_THREADS  // of an SM, for which registers are to suffice
#define STACK_THREADS (RADIUS <= 3 ? 896 : sizeof(T) == 1 ? 640 : 512)
#endif
#ifndef STACK_APART
#define STACK_APART 0  // the host's choice, by the width
#endif
#ifndef STACK_RAGGED
#define STACK_RAGGED 1  // 0 where no row is ragged, which takes fewer registers: the host says which
#endif
#define STACK_HELD (STACK_ROWS + 2 * RADIUS)

// Returns the means of a row of a lane's columns, the float sums of K rows of which are given.
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

// Calls write(means) for row `top` and those below it, of which `rows` has all K that each needs.
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

// The same for bytes, with the sums of two columns in a register.
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

// Reads and writes a strip of a warp, from row `top` on; the lane's columns begin with x. `holds`: they are inside.
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

// The same for bytes whose rows start anywhere, but for the edge. `writes`: the lane writes, not only lends.
__device__ __forceinline__ void stack_ragged(const T *in, T *out, int nx, int height, int x, int top, bool writes)
{
    const int end = min(top + STACK_ROWS, height - RADIUS - 1), last = end + RADIUS - 1;
    const int from = min(max(x, 0), (nx - 1) / SPAN * SPAN + SPAN);  // lanes beyond the row read in it, too
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

// Requests all rows of a short strip at once, which warps of a block share by the SM's cache.
// A copy that reads and writes in this way has 0.95 of a copy's speed, and so have these rungs where there is little to
// add: floats, and bytes with a radius of 1. What remains, for bytes with a larger radius: additions, which keep the
// integer unit busy two thirds of the time. Ragged rows of floats go as in strip.
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
    const int groups = STACK_APART ? 1 << 30 : nx / SPAN + SIDE;  // in a row, those of zeros among them
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
#endif
