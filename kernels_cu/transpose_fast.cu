// Matrix transpose, the end of the ladder: vectors of 16 bytes on both sides.
//
// For float, a thread reads 16 bytes of each of four rows of `in`, turns them in registers, and stores four vectors:
//
//     a0 a1 a2 a3                     a0 b0 c0 d0       row x     of the transposed tile
//     b0 b1 b2 b3          ->         a1 b1 c1 d1       row x + 1
//     c0 c1 c2 c3                     a2 b2 c2 d2       row x + 2
//     d0 d1 d2 d3                     a3 b3 c3 d3       row x + 3
//
// So the tile lies transposed in shared memory, and a block writes it to `out` vector by vector. A tile has rows of 256
// bytes in `in` and of 128 or more in `out`, so that each access of a warp and each visit to a page of memory is long.

#include "vectors.cuh"

// For float a tile has 64 x 64 elements, a square of 4 x 4 for each of 256 threads. If the matrix is at most half as
// wide, the tile is as wide as the matrix and higher, from 32 x 128 to 4 x 1024, so that a block still has as much to
// move. If the matrix is at most half as high, the tile is as high as the matrix.
#ifndef VTILE_X                                               // the host's choice if a side is short
#define VTILE_X (16 * VEC)                                    // columns of `in` in a tile
#define VTILE_Y (sizeof(T) < 4 || BLOCK > 256 ? 128 : 64)     // rows of `in` in a tile
#define LEAD (sizeof(T) == 1 ? 0 : BANK_ROW)                  // rows read above a tile if rows of `out` are unaligned
#endif
#ifndef RESIDENT                                              // the host's choice if there are few columns
#define RESIDENT (sizeof(T) == 1 ? 1280 : 1024)               // the registers must be enough for these threads on an SM
#endif
// Vectors in a row of the tile in shared memory: whole rows of the banks, or a part that divides one.
#define VPITCH (VTILE_Y + LEAD >= 8 * VEC ? (VTILE_Y + LEAD + 8 * VEC - 1) / (8 * VEC) * 8 : (VTILE_Y + LEAD) / VEC)
#ifndef VUNROLL                                               // the host's choice if there are few columns
#define VUNROLL (sizeof(T) < 4 ? (int)sizeof(T) : 8)          // iterations of a loop in flight at once
#endif

const unsigned UNROLLED = VUNROLL;  // a constant, because a pragma does not expand the macro T

// Reads the tile at (x0, y0) and the LEADING rows above it: a thread reads 16 bytes of each of four rows, or an element
// of each if rows of `in` are unaligned, and turns them in registers. INSIDE: no access is outside the matrix.
template <bool HINTS, bool VECTORS, bool INSIDE, int LEADING>
__device__ __forceinline__ void read_tile(Vector *tile, const T *in, unsigned nx, unsigned ny,
                                          unsigned x0, unsigned y0, unsigned idx)
{
    const unsigned width = VECTORS ? VEC : 1, across = VTILE_X / width, count = across * (VTILE_Y + LEADING) / 4;
#pragma unroll UNROLLED
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, col = i % across * width, quad = i / across;
        unsigned x = x0 + col, y = y0 - LEADING + quad * 4;
        if (first + BLOCK > count && i >= count)
            break;
        Vector row[4] = {};
#pragma unroll
        for (unsigned r = 0; r < 4; r++)
            if (INSIDE || (x < nx && y + r < ny)) {
                const T *from = in + (size_t)(y + r) * nx + x;
                fetch<HINTS, VECTORS>(row[r], from);
            }
        store_columns<VPITCH>(tile, col, quad, row, width);
    }
}

// Writes the tile. If ny is not a multiple of VEC, a row of `out` starts anywhere, and the tile's piece would begin
// and end inside a sector, which costs a whole sector. So the piece starts up to LEADING elements early, at a multiple
// of 128 bytes, with elements of the LEADING rows above the tile, and ends as much earlier:
//
//     out:   ...|----128 bytes----|----128 bytes----|...      a tile's own rows y0 to y0 + VTILE_Y
//                     |<- early ->y0                          what it writes begins here
//
// The last tile of a row also writes the rest.
template <bool VECTORS, bool INSIDE, int LEADING>
__device__ __forceinline__ void write_tile(const Vector *tile, T *out, unsigned nx, unsigned ny,
                                           unsigned x0, unsigned y0, unsigned idx)
{
    const unsigned width = VECTORS ? VEC : 1, across = (VTILE_Y + (INSIDE ? 0 : LEADING)) / width;
    const unsigned count = across * VTILE_X;
#pragma unroll UNROLLED
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, col = i % across * width, row = i / across;
        unsigned early = LEADING ? ((x0 + row) * ny + y0) & (LEADING - 1) : 0;
        unsigned x = x0 + row, y = y0 + col - early, at = LEADING + col - early;
        if (first + BLOCK > count && i >= count)
            break;
        if (INSIDE || (x < nx && y < ny && (col < VTILE_Y || y0 + VTILE_Y >= ny))) {
            T *to = out + (size_t)x * ny + y;
            if (VECTORS)
                *(uint4 *)to = tile[place<VPITCH>(row, at / VEC)].all;
            else
                *to = tile[place<VPITCH>(row, at / VEC)].at[at % VEC];
        }
    }
}

// Reads and writes one tile, with vectors on the sides whose rows are aligned.
template <bool HINTS, bool VECTORS_IN, bool VECTORS_OUT>
__device__ __forceinline__ void move_tile(Vector *tile, const T *in, T *out, unsigned nx, unsigned ny,
                                          unsigned x0, unsigned y0, unsigned idx)
{
    const int leading = VECTORS_OUT ? 0 : LEAD;
    // Only a tile at the edge checks each access.
    bool inside = x0 + VTILE_X <= nx && y0 + 1 > leading && y0 + VTILE_Y + (leading > 0) <= ny;

    if (inside)
        read_tile<HINTS, VECTORS_IN, true, leading>(tile, in, nx, ny, x0, y0, idx);
    else
        read_tile<HINTS, VECTORS_IN, false, leading>(tile, in, nx, ny, x0, y0, idx);
    __syncthreads();
    if (inside)
        write_tile<VECTORS_OUT, true, leading>(tile, out, nx, ny, x0, y0, idx);
    else
        write_tile<VECTORS_OUT, false, leading>(tile, out, nx, ny, x0, y0, idx);
}

// Moves the block's tile. A side uses vectors if its rows start at multiples of 16 bytes.
template <bool HINTS>
__device__ __forceinline__ void move_vectors(Vector *tile, const T *in, T *out, unsigned nx, unsigned ny)
{
    unsigned tiles_y = (ny + VTILE_Y - 1) / VTILE_Y;
    unsigned x0 = blockIdx.x / tiles_y * VTILE_X;
    unsigned y0 = blockIdx.x % tiles_y * VTILE_Y;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;

    if (x0 >= nx)
        return;
    if (nx % VEC == 0 && ny % VEC == 0)
        move_tile<HINTS, true, true>(tile, in, out, nx, ny, x0, y0, idx);
    else if (ny % VEC == 0)
        move_tile<HINTS, false, true>(tile, in, out, nx, ny, x0, y0, idx);
    else if (nx % VEC == 0)
        move_tile<HINTS, true, false>(tile, in, out, nx, ny, x0, y0, idx);
    else
        move_tile<HINTS, false, false>(tile, in, out, nx, ny, x0, y0, idx);
}

// Moves 16 bytes an access on both sides, transposing in registers on the way to a swizzled tile.
// A quarter of swizzle's accesses for float, under a third of its instructions, and 64 bytes under way in each thread.
// Blocks are numbered down the rows first, so that blocks that run together fill the same rows of `out`. A side whose
// rows are not a multiple of 16 bytes moves single elements. What remains is the memory: long rows on one side and
// pieces of 256 bytes on the other are a little slower than a copy's long rows on both.
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCK < 256 ? 4 : RESIDENT / BLOCK)
transpose_vector(const T *__restrict__ in, T *__restrict__ out, int nx, int ny)
{
    __shared__ Vector tile[VTILE_X * VPITCH];

    move_vectors<false>(tile, in, out, nx, ny);
}

// The last rung is `vector` with hints. A tile takes 256 bytes of a row. If rows of `in` are not a multiple of 256
// bytes long, a tile's piece begins and ends inside aligned 256 bytes, and a neighbour needs the rest of them. A plain read
// brings only the sectors of 32 bytes that it needs, so the memory is visited twice. With the hint the first block
// brings all of them, and the neighbour, a column of tiles later, finds its part in L2:
//
//     memory   |------- 256 bytes -------|------- 256 bytes -------|------- 256 bytes -------|
//     a row     . . . . . . | what one tile takes     | what the next takes     | . . . . . .
//
// If rows are aligned, a tile needs all of its 256 bytes, and the hint names the 128 bytes of a cache line.

// Moves what vector moves, and names in each read the bytes around it that the L2 cache should bring too (FETCH).
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCK < 256 ? 4 : RESIDENT / BLOCK)
transpose_prefetch(const T *__restrict__ in, T *__restrict__ out, int nx, int ny)
{
    __shared__ Vector tile[VTILE_X * VPITCH];

    move_vectors<true>(tile, in, out, nx, ny);
}
