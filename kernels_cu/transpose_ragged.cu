// Matrix transpose for rows that start anywhere: a detour for sides that are not a multiple of 16 bytes.
//
// Rows that are VEC apart begin at the same distance from a multiple of 16 bytes. If each is read from the multiple
// before it, their vectors hold the same columns. So rows y, y + VEC, y + 2 VEC, y + 3 VEC make a quad, which is turned
// in registers as in transpose_fast.cu. For float and rows of 7 columns, of which row 1 starts at element 7:
//
//     row 1   . . . a | b c d e | f g          vectors from element 4 on: the first has one column of the row
//     row 5   . . . p | q r s t | u v          starts at 35 = 4 * 8 + 3, like row 1
//
// A row of the tile holds the quads of y % VEC = 0 first, then those of 1, and so on, so that neighbours in a column
// lie apart: a lane collects the four elements that it writes as one vector.

#include "vectors.cuh"

// A vector holds too many elements of 1 or 2 bytes for that. Their rows are read as two vectors each, which are shifted
// in registers to the tile's first column and turned as in `vector`; the vectors to write are shifted too.
// Rows begin and end inside lines of the L2 cache, and a neighbour needs the rest: each read asks for all 128 bytes.
#ifndef LANES
#define LANES (sizeof(T) < 4 ? 8 * (int)sizeof(T) : 32)  // lanes that read one row
#endif
#ifndef RAGGED_BLOCKS
#define RAGGED_BLOCKS (BLOCK < 256 ? 4 : 1024 / BLOCK)  // blocks on an SM; the host's choice if there are few tiles
#endif
#define RTILE_X ((LANES - (sizeof(T) < 4 ? 0 : 1)) * VEC)  // columns of `in` in a tile: floats read one vector more
#ifndef RLEAD                           // the host's choice: 0 if every row of `out` starts at 32 bytes
#define RLEAD (32 / (int)sizeof(T))     // rows read before a tile, so that its writes begin at 32 bytes
#endif
#define RHIGH (256 / (int)sizeof(T))    // rows read
#define RTILE_Y (RHIGH - RLEAD)         // rows of `in` in a tile
#define RWIDE (RHIGH / VEC)             // vectors in a row of the tile

// Returns where element y of row x of the transposed tile lies.
__device__ __forceinline__ unsigned ragged_place(unsigned x, unsigned y)
{
    return x * RHIGH + (y % VEC * RWIDE + y / VEC ^ x / VEC % 8 * 4);
}

// Returns the 16 bytes of `in` from element `from` on; 0 for elements beyond its `size`.
template <bool INSIDE>
__device__ __forceinline__ Vector vector_of(const T *in, size_t from, size_t size)
{
    Vector v = {};
    if (INSIDE || from + VEC <= size)
        fetch<true, true>(v, in + from);
    else
#pragma unroll
        for (unsigned c = 0; c < VEC; c++)
            if (from + c < size)
                v.at[c] = in[from + c];
    return v;
}

// Returns 16 of the 32 bytes of two vectors, from byte `by` on.
__device__ __forceinline__ Vector shifted(const Vector &first, const Vector &second, unsigned by)
{
    unsigned word[8];
    Vector v;

#pragma unroll
    for (int w = 0; w < 4; w++) {
        word[w] = first.word[w];
        word[w + 4] = second.word[w];
    }
#pragma unroll
    for (int step = 2; step > 0; step /= 2)
#pragma unroll
        for (int w = 0; w < 4 + step; w++)
            word[w] = by & 4 * step ? word[w + step] : word[w];
#pragma unroll
    for (int w = 0; w < 4; w++)
        v.word[w] = __funnelshift_r(word[w], word[w + 1], by % 4 * 8);
    return v;
}

// Reads the tile; for elements of 1 and 2 bytes.
template <bool INSIDE>
__device__ __forceinline__ void read_shifted(Vector *tile, const T *in, unsigned nx, unsigned ny, unsigned x0,
                                             unsigned y0, unsigned idx)
{
    const unsigned count = LANES * RHIGH / 4;
    const size_t size = (size_t)nx * ny;
#pragma unroll 1
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, x = x0 + i % LANES * VEC, quad = i / LANES, y = y0 - RLEAD + quad * 4;
        if (first + BLOCK > count && i >= count)
            break;
        Vector row[4] = {}, next[4] = {};
        unsigned before[4];  // elements of the row's first vector that are before x
#pragma unroll
        for (unsigned r = 0; r < 4; r++) {
            size_t start = (size_t)(y + r) * nx + x;
            before[r] = start % VEC;
            if (INSIDE || (y + r < ny && x < nx))
                row[r] = vector_of<INSIDE>(in, start - before[r], size);
            if (before[r] && (INSIDE || (y + r < ny && x + VEC - before[r] < nx)))
                next[r] = vector_of<INSIDE>(in, start - before[r] + VEC, size);
        }
#pragma unroll
        for (unsigned r = 0; r < 4; r++)
            row[r] = shifted(row[r], next[r], before[r] * sizeof(T));
        store_columns<RWIDE>(tile, x - x0, quad, row, VEC);
    }
}

// Returns VEC elements of row x of the transposed tile, from element `at` on; beyond its end they are undefined.
__device__ __forceinline__ Vector elements_of(const T *tile, unsigned x, unsigned at)
{
    Vector v;
    if (sizeof(T) < 4) {
        const Vector *vectors = (const Vector *)tile;
        unsigned from = at / VEC;
        v = shifted(vectors[place<RWIDE>(x, from)], vectors[place<RWIDE>(x, (from + 1) % RWIDE)],
                    at % VEC * sizeof(T));
    } else {
#pragma unroll
        for (unsigned e = 0; e < VEC; e++)
            v.at[e] = tile[ragged_place(x, (at + e) % RHIGH)];
    }
    return v;
}

// Reads the tile; for elements of 4 bytes.
template <bool INSIDE>
__device__ __forceinline__ void read_ragged(T *tile, const T *in, unsigned nx, unsigned ny, unsigned x0, unsigned y0,
                                            unsigned idx)
{
    const unsigned count = LANES * RHIGH / 4;
#pragma unroll 2
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, v = i % LANES, quad = i / LANES;
        unsigned at = quad / VEC * 4 * VEC + quad % VEC, y = y0 - RLEAD + at;
        unsigned before = (y * nx + x0) % VEC;  // columns of the first vector that are before the tile
        if (first + BLOCK > count && i >= count)
            break;
        Vector row[4] = {};
#pragma unroll
        for (unsigned r = 0; r < 4; r++)
            if (INSIDE || (y + r * VEC < ny && x0 + v * VEC < nx + before))
                row[r] = vector_of<INSIDE>(in, (size_t)(y + r * VEC) * nx + x0 - before + v * VEC, (size_t)nx * ny);
#pragma unroll
        for (unsigned c = 0; c < VEC; c++) {
            unsigned x = v * VEC + c - before;
            Quad q;
            for (int r = 0; r < 4; r++)
                q.at[r] = row[r].at[c];
            if (x < RTILE_X)
                *(Vector *)&tile[ragged_place(x, at)] = q.part[0];
        }
    }
}

// Writes the tile; its pieces of rows start early, as in `vector`.
template <bool INSIDE>
__device__ __forceinline__ void write_ragged(const T *tile, T *out, unsigned nx, unsigned ny, unsigned x0, unsigned y0,
                                             unsigned idx)
{
    const unsigned count = RTILE_X * RWIDE;
    bool last = y0 + RTILE_Y >= ny;  // tile of its column: it also writes the rest
#pragma unroll 2
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, x = i / RWIDE, col = i % RWIDE * VEC;
        unsigned early = RLEAD ? ((x0 + x) * ny + y0) & (RLEAD - 1) : 0, at = RLEAD + col - early, y = y0 + col - early;
        bool writes = col < RTILE_Y || (!INSIDE && last);
        if (count % BLOCK && i >= count)
            break;
        Vector v = elements_of(tile, x, at % RHIGH);  // undefined in lanes that do not write
        T *to = out + (size_t)(x0 + x) * ny + y;
        if (INSIDE || (x0 + x < nx && y < ny && y + VEC <= ny)) {
            if (writes)
                *(uint4 *)to = v.all;
        } else
            for (unsigned e = 0; e < VEC; e++)
                if (writes && x0 + x < nx && y + e < ny)
                    out[(size_t)(x0 + x) * ny + (y + e)] = v.at[e];
    }
}

// Moves 16 bytes an access also where rows start anywhere, for elements of up to 4 bytes.
// It takes half of the instructions with which vector moves such rows element by element. A tile is 124 columns wide,
// so that few sectors at the ends of its rows are read twice. What remains: each vector that is written is collected from
// four places. If all rows are aligned, vector is faster.
extern "C" __global__ void __launch_bounds__(BLOCK, RAGGED_BLOCKS)
transpose_ragged(const T *__restrict__ in, T *__restrict__ out, int nx, int ny)
{
    extern __shared__ uint4 ragged[];
    T *tile = (T *)ragged;

    unsigned tiles_y = ((unsigned)ny + RTILE_Y - 1) / RTILE_Y;
    unsigned x0 = blockIdx.x / tiles_y * RTILE_X;
    unsigned y0 = blockIdx.x % tiles_y * RTILE_Y;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;

    if (x0 >= nx)
        return;
    // Only a tile at the edge checks each access. The last vector of a row may reach into the next row if there is one.
    bool row_after = y0 + RTILE_Y < ny || (RLEAD == 0 && y0 + RTILE_Y == ny && x0 + RTILE_X + VEC <= nx);
    if (x0 + RTILE_X <= nx && y0 + 1 > RLEAD && row_after) {
        if (sizeof(T) < 4)
            read_shifted<true>((Vector *)tile, in, nx, ny, x0, y0, idx);
        else
            read_ragged<true>(tile, in, nx, ny, x0, y0, idx);
        __syncthreads();
        write_ragged<true>(tile, out, nx, ny, x0, y0, idx);
    } else {
        if (sizeof(T) < 4)
            read_shifted<false>((Vector *)tile, in, nx, ny, x0, y0, idx);
        else
            read_ragged<false>(tile, in, nx, ny, x0, y0, idx);
        __syncthreads();
        write_ragged<false>(tile, out, nx, ny, x0, y0, idx);
    }
}
