// Matrix transpose: out[x][y] = in[y][x].
//
// in is ny rows by nx columns, out is nx rows by ny columns, both row-major, of element type T.
// No arithmetic, only movement: each element is read once and written once, 2 * nx * ny * sizeof(T) bytes.
// A copy moves the same bytes, so the speed of the fastest copy is the ceiling of the whole ladder. The difficulty is
// that a warp which reads 32 neighbours of a row must write 32 elements of a column, each in a memory sector of its
// own.
//
// Read the ladder from top to bottom: every kernel differs from an earlier one by a few lines, which its
// comment names together with the bottleneck they remove and the one they leave.
// BDIMX and BDIMY are the threads of a block; x runs along a row of the matrix that the grid covers.
// Offsets are size_t because nx * ny may exceed 2^32.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 32
#endif
#ifndef BDIMY
#define BDIMY 8
#endif
#ifndef IPAD
#define IPAD 1  // elements that a padded tile leaves unused after each row
#endif
#ifndef UNROLL
#define UNROLL 4  // elements of a thread in naive-col-unroll
#endif
#ifndef TILE
#define TILE 32  // edge of the square tiles of tile-rows and swizzle, which no longer follow the block
#endif

#define BLOCK (BDIMX * BDIMY)                            // threads in a block
#define BANK_ROW (128 / (int)sizeof(T))                  // elements in one row of the 32 banks
#define PAD_EVERY (BDIMX > BANK_ROW ? BDIMX : BANK_ROW)  // a row of the tile, or of the banks if that is longer
#define PADDED(i) ((i) + (i) / PAD_EVERY * IPAD)         // where element i of a padded tile lies
#define TILES 2                                          // side by side in smem-unroll-pad
#define IN_TILE(i) (TILE * TILE % BLOCK == 0 || (i) < TILE * TILE)

// Copies one element a thread without transposing, row by row: the ceiling of kernels with one element a thread.
// A warp reads and writes neighbours, so nothing is wasted. What remains: a thread has one element under way. Kernels
// with more, as smem-unroll-pad and those from tile-rows on, are faster: this copy is not the ceiling of the ladder.
extern "C" __global__ void transpose_copy_row(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < nx && iy < ny)
        out[(size_t)iy * nx + ix] = in[(size_t)iy * nx + ix];
}

// Reads rows and writes columns, one element a thread.
// The reads of a warp are neighbours. A narrower block writes longer pieces of a row of out and reads shorter ones.
// What remains: the writes of a warp are ny elements apart, up to 32 sectors of 32 bytes for 32 elements.
extern "C" __global__ void transpose_naive_row(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < nx && iy < ny)
        out[(size_t)ix * ny + iy] = in[(size_t)iy * nx + ix];
}

// Turns the tile round in shared memory, so that reads and writes are both coalesced.
// The threads are numbered anew for the second half: neighbours now follow a row of the transposed tile.
// What remains: threads walk down a column of the tile, whose elements share few banks, and the accesses queue up.
extern "C" __global__ void transpose_smem(const T *in, T *out, int nx, int ny)
{
    __shared__ T tile[BLOCK];

    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned icol = idx % BDIMY;
    unsigned irow = idx / BDIMY;
    unsigned ox = blockIdx.y * BDIMY + icol;
    unsigned oy = blockIdx.x * BDIMX + irow;

    if (ix < nx && iy < ny)
        tile[idx] = in[(size_t)iy * nx + ix];
    __syncthreads();
    if (ox < ny && oy < nx)
        out[(size_t)oy * ny + ox] = tile[icol * BDIMX + irow];
}

// Leaves IPAD elements of the tile unused after each row, so that a column spreads over all banks.
// A row shorter than the 32 banks shares its padding with the next ones: only so is a 16x16 tile free of conflicts.
// What remains is that a thread has one element under way, too little to hide the memory's latency.
extern "C" __global__ void transpose_smem_pad(const T *in, T *out, int nx, int ny)
{
    __shared__ T tile[PADDED(BLOCK)];

    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned icol = idx % BDIMY;
    unsigned irow = idx / BDIMY;
    unsigned ox = blockIdx.y * BDIMY + icol;
    unsigned oy = blockIdx.x * BDIMX + irow;

    if (ix < nx && iy < ny)
        tile[PADDED(idx)] = in[(size_t)iy * nx + ix];
    __syncthreads();
    if (ox < ny && oy < nx)
        out[(size_t)oy * ny + ox] = tile[PADDED(icol * BDIMX + irow)];
}

// Gives each thread two elements, in tiles side by side, so that two loads are under way at once.
// The index arithmetic is shared as well. What remains: the pieces of a row that a block writes are only BDIMY long.
extern "C" __global__ void transpose_smem_unroll_pad(const T *in, T *out, int nx, int ny)
{
    __shared__ T tile[TILES][PADDED(BLOCK)];

    unsigned ix = blockIdx.x * BDIMX * TILES + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned icol = idx % BDIMY;
    unsigned irow = idx / BDIMY;
    unsigned ox = blockIdx.y * BDIMY + icol;
    unsigned oy = blockIdx.x * BDIMX * TILES + irow;

    if (ix < nx && iy < ny)
        tile[0][PADDED(idx)] = in[(size_t)iy * nx + ix];
    if (ix + BDIMX < nx && iy < ny)
        tile[1][PADDED(idx)] = in[(size_t)iy * nx + ix + BDIMX];
    __syncthreads();
    if (ox < ny && oy < nx)
        out[(size_t)oy * ny + ox] = tile[0][PADDED(icol * BDIMX + irow)];
    if (ox < ny && oy + BDIMX < nx)
        out[(size_t)(oy + BDIMX) * ny + ox] = tile[1][PADDED(icol * BDIMX + irow)];
}

// A detour of five kernels without shared memory begins here. All are slower than smem-unroll-pad; tile-rows goes on
// from there.

// Copies without transposing, column by column: what strided access costs when both sides have it.
// From here to diagonal-col the grid covers out, except in diagonal-row: x runs over its ny columns, y over its nx
// rows. What remains: neighbouring threads are nx elements apart in both matrices, so each access of a warp touches
// up to 32 sectors.
extern "C" __global__ void transpose_copy_col(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < ny && iy < nx)
        out[(size_t)ix * nx + iy] = in[(size_t)ix * nx + iy];
}

// Reads columns and writes rows, one element a thread.
// Faster than naive-row: a sector that a strided read fetches stays in the cache for the next rows of the block,
// while a strided write leaves the chip in pieces. What remains: the strided reads cost up to 32 sectors a warp.
extern "C" __global__ void transpose_naive_col(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < ny && iy < nx)
        out[(size_t)iy * ny + ix] = in[(size_t)ix * nx + iy];
}

// Gives each thread UNROLL elements of naive-col, BDIMX apart, so that as many loads are under way at once.
// That hides latency. What remains: the sectors fetched for each warp stay the same.
extern "C" __global__ void transpose_naive_col_unroll(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX * UNROLL + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

#pragma unroll
    for (int k = 0; k < UNROLL; k++, ix += BDIMX)
        if (ix < ny && iy < nx)
            out[(size_t)iy * ny + ix] = in[(size_t)ix * nx + iy];
}

// Renumbers the blocks of naive-row along diagonals, so that blocks that run together differ in row and column.
// On early GPUs blocks in one column of tiles queued at one memory partition. Today addresses are hashed over
// the partitions, so that there is nothing to win. What remains: the strided writes.
extern "C" __global__ void transpose_diagonal_row(const T *in, T *out, int nx, int ny)
{
    size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    unsigned by = block % gridDim.y;
    unsigned bx = (block / gridDim.y + by) % gridDim.x;

    unsigned ix = bx * BDIMX + threadIdx.x;
    unsigned iy = by * BDIMY + threadIdx.y;

    if (ix < nx && iy < ny)
        out[(size_t)ix * ny + iy] = in[(size_t)iy * nx + ix];
}

// Renumbers the blocks of naive-col along diagonals.
// The same change for strided reads: it decides which blocks share the cache at one time. What remains: the
// sectors fetched for each warp stay the same.
extern "C" __global__ void transpose_diagonal_col(const T *in, T *out, int nx, int ny)
{
    size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    unsigned by = block % gridDim.y;
    unsigned bx = (block / gridDim.y + by) % gridDim.x;

    unsigned ix = bx * BDIMX + threadIdx.x;
    unsigned iy = by * BDIMY + threadIdx.y;

    if (ix < ny && iy < nx)
        out[(size_t)iy * ny + ix] = in[(size_t)ix * nx + iy];
}

// Moves a 32x32 tile with any block: 32x8 threads take four rows each. The ladder goes on here from smem-unroll-pad.
// The rows read and the rows written are 32 elements long whatever the block, and a thread's loads are under way
// together, since none has a branch before it: past the edge they repeat the last row or column of in.
// What remains: padding costs a column of shared memory, and every access moves one element.
extern "C" __global__ void transpose_tile_rows(const T *in, T *out, int nx, int ny)
{
    __shared__ T tile[TILE][TILE + 1];

    unsigned x0 = blockIdx.x * TILE;
    unsigned y0 = blockIdx.y * TILE;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;

#pragma unroll 4
    for (unsigned first = 0; first < TILE * TILE; first += BLOCK) {
        unsigned i = first + idx, col = i % TILE, row = i / TILE;
        unsigned ix = min(x0 + col, nx - 1), iy = min(y0 + row, ny - 1);
        if (IN_TILE(i))
            tile[row][col] = in[(size_t)iy * nx + ix];
    }
    __syncthreads();
#pragma unroll 4
    for (unsigned first = 0; first < TILE * TILE; first += BLOCK) {
        unsigned i = first + idx, col = i % TILE, row = i / TILE;
        unsigned ox = y0 + col, oy = x0 + row;
        if (IN_TILE(i) && ox < ny && oy < nx)
            out[(size_t)oy * ny + ox] = tile[col][row];
    }
}

// Exchanges the columns within each row of the tile (XOR with the row number) instead of padding it.
// A column still lies in 32 different banks, no shared memory is unused, and rows stay aligned for wide accesses.
// What remains is the number of instructions: every access still moves one element.
extern "C" __global__ void transpose_swizzle(const T *in, T *out, int nx, int ny)
{
    __shared__ T tile[TILE][TILE];

    unsigned x0 = blockIdx.x * TILE;
    unsigned y0 = blockIdx.y * TILE;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;

#pragma unroll 4
    for (unsigned first = 0; first < TILE * TILE; first += BLOCK) {
        unsigned i = first + idx, col = i % TILE, row = i / TILE;
        unsigned ix = min(x0 + col, nx - 1), iy = min(y0 + row, ny - 1);
        if (IN_TILE(i))
            tile[row][col ^ row] = in[(size_t)iy * nx + ix];
    }
    __syncthreads();
#pragma unroll 4
    for (unsigned first = 0; first < TILE * TILE; first += BLOCK) {
        unsigned i = first + idx, col = i % TILE, row = i / TILE;
        unsigned ox = y0 + col, oy = x0 + row;
        if (IN_TILE(i) && ox < ny && oy < nx)
            out[(size_t)oy * ny + ox] = tile[col][row ^ col];
    }
}

// This rung moves 16 bytes an access on both sides. The idea, for float:
//
//     a thread reads 16 bytes of each     turns them in     and stores four times four elements of a
//     of four rows of `in`                registers         column: 16 bytes of a row of `out` each
//
//         a0 a1 a2 a3                     a0 b0 c0 d0       row x     of the transposed tile
//         b0 b1 b2 b3          ->         a1 b1 c1 d1       row x + 1
//         c0 c1 c2 c3                     a2 b2 c2 d2       row x + 2
//         d0 d1 d2 d3                     a3 b3 c3 d3       row x + 3
//
// So the tile lies transposed in shared memory, in vectors of 16 bytes, and is written to `out` vector by vector. Four
// elements down a column are a quad: one vector of floats, a word of four bytes, two vectors of doubles.
// A tile has rows of 256 bytes in `in` and of 128 or more in `out`: each access of a warp and each visit to a page of
// memory is then long enough. For float these are 64 columns by 64 rows, a square of 4 x 4 for each of 256 threads.
// A matrix half as wide or less would leave half of such a tile empty: it has tiles as wide as itself, 32 x 128 or even
// 4 x 1024, so that a block has as much to move as elsewhere. One half as high or less has tiles as high as itself.
#define VEC (16 / (int)sizeof(T))                             // elements in 16 bytes
#ifndef VTILE_X                                               // the host's choice where a side is short
#define VTILE_X (16 * VEC)                                    // columns of `in` in a tile
#define VTILE_Y (sizeof(T) < 4 || BLOCK > 256 ? 128 : 64)     // rows of `in` in a tile
#define LEAD (sizeof(T) == 1 ? 0 : BANK_ROW)                  // rows read ahead of a tile where rows of `out` are unaligned
#endif
#ifndef RESIDENT                                              // the host's choice where columns are few
#define RESIDENT (sizeof(T) == 1 ? 1280 : 1024)               // threads of an SM that registers are kept for
#endif
// Vectors in a row of the tile in shared memory: whole rows of banks, or a part of one that divides it.
#define VPITCH (VTILE_Y + LEAD >= 8 * VEC ? (VTILE_Y + LEAD + 8 * VEC - 1) / (8 * VEC) * 8 : (VTILE_Y + LEAD) / VEC)
#ifndef VUNROLL                                               // the host's choice where columns are few
#define VUNROLL (sizeof(T) < 4 ? (int)sizeof(T) : 8)          // rounds of a loop that are under way at once
#endif

const unsigned UNROLLED = VUNROLL;  // in a word of its own: a pragma does not expand the macro T

union Vector { uint4 all; uint2 half[2]; unsigned word[4]; T at[VEC]; };  // 16 bytes along a row
union Quad { Vector part[sizeof(T) > 4 ? 2 : 1]; T at[4]; };              // four elements down a column

// Where vector v of row x of the transposed tile lies. The XOR exchanges the eight vectors that span the 32 banks, by
// the row, so that quads down a column and vectors along a row both spread over them. Vectors 0 to 7 of float rows:
//
//     row 0   0 1 2 3 4 5 6 7      row 1   1 0 3 2 5 4 7 6      row 4   5 4 7 6 1 0 3 2 (4 and 4 / VEC both count)
//
// Where several rows of the tile share a row of banks, the exchange is by the number of that.
template <unsigned PITCH>
__device__ __forceinline__ unsigned place(unsigned x, unsigned v)
{
    if (PITCH >= 8)
        return x * PITCH + v / 8 * 8 + (v ^ x ^ x / VEC) % 8;
    unsigned at = x * PITCH + v, row = at / 8;
    return row * 8 + (at ^ row ^ row / 8) % 8;
}

// Puts the quad with number `quad` of row x into the tile: it is a whole vector, a part of one, or two.
template <unsigned PITCH>
__device__ __forceinline__ void store_quad(Vector *tile, unsigned x, unsigned quad, const Quad &q)
{
    Vector &to = tile[place<PITCH>(x, quad * 4 / VEC)];
    if (sizeof(T) == 1)
        to.word[quad % 4] = q.part[0].word[0];
    else if (sizeof(T) == 2)
        to.half[quad % 2] = q.part[0].half[0];
    else
        to.all = q.part[0].all;
    if (sizeof(T) == 8)
        tile[place<PITCH>(x, quad * 2 + 1)].all = q.part[sizeof(T) > 4].all;
}

// Turns 4 x 4 bytes at a time, in two steps of four byte permutations: word w of row r becomes the quad of column
// 4 w + r. One element after the other would take twelve permutations.
__device__ __forceinline__ void turn_bytes(Vector row[4])
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        unsigned a = row[0].word[w], b = row[1].word[w], c = row[2].word[w], d = row[3].word[w];
        unsigned ab01 = __byte_perm(a, b, 0x5140), cd01 = __byte_perm(c, d, 0x5140);  // a0 b0 a1 b1
        unsigned ab23 = __byte_perm(a, b, 0x7362), cd23 = __byte_perm(c, d, 0x7362);
        row[0].word[w] = __byte_perm(ab01, cd01, 0x5410);
        row[1].word[w] = __byte_perm(ab01, cd01, 0x7632);
        row[2].word[w] = __byte_perm(ab23, cd23, 0x5410);
        row[3].word[w] = __byte_perm(ab23, cd23, 0x7632);
    }
}

#ifndef FETCH
#define FETCH 128  // the host's choice: 256 where rows of `in` are longer than that and start amid 256 bytes
#endif

// Turns the first `width` columns of four rows, and puts them into the tile as quads with one number.
template <unsigned PITCH>
__device__ __forceinline__ void store_columns(Vector *tile, unsigned col, unsigned quad, Vector row[4], unsigned width)
{
    if (width > 1 && sizeof(T) == 1)
        turn_bytes(row);
#pragma unroll
    for (unsigned c = 0; c < width; c++) {
        Quad q;
        if (width > 1 && sizeof(T) == 1)
            q.part[0].word[0] = row[c % 4].word[c / 4];
        else
            for (int r = 0; r < 4; r++)
                q.at[r] = row[r].at[c];
        store_quad<PITCH>(tile, col + c, quad, q);
    }
}

// Reads 16 bytes of a row, or an element. For the last two rungs, HINTS, it asks the L2 cache to bring the aligned FETCH
// bytes around them if it has to turn to the memory (PTX: ld.level::prefetch_size, from compute capability 8.0 on).
template <bool HINTS, bool VECTORS>
__device__ __forceinline__ void fetch(Vector &to, const T *from)
{
#if __CUDA_ARCH__ >= 800
#define IN_WORDS(x) #x
#define LOAD(bytes) "ld.global.nc.L2::" IN_WORDS(bytes) "B"
    if (HINTS && VECTORS)
        asm(LOAD(FETCH) ".v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(to.all.x), "=r"(to.all.y), "=r"(to.all.z), "=r"(to.all.w) : "l"(from));
    else if (HINTS && sizeof(T) == 8)
        asm(LOAD(FETCH) ".v2.u32 {%0, %1}, [%2];" : "=r"(to.half[0].x), "=r"(to.half[0].y) : "l"(from));
    else if (HINTS && sizeof(T) == 4)
        asm(LOAD(FETCH) ".u32 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
    else if (HINTS && sizeof(T) == 2)
        asm(LOAD(FETCH) ".u16 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
    else if (HINTS)
        asm(LOAD(FETCH) ".u8 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
    else
#endif
    if (VECTORS)
        to.all = *(const uint4 *)from;
    else
        to.at[0] = *from;
}

// Reads the tile at (x0, y0) and the LEADING rows above it: a thread takes 16 bytes of each of four rows (an element
// of each, where rows of `in` are unaligned) and turns them in registers. INSIDE: no access is outside the matrix.
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

// Writes the tile. If ny is not a multiple of VEC, a row of `out` starts anywhere, and a tile's piece of it would begin
// and end amid a sector, which costs as much as a whole one. So the piece starts up to LEADING elements early, at a
// multiple of 128 bytes, with what the LEADING rows above the tile gave, and ends as much earlier:
//
//     out:   ...|----128 bytes----|----128 bytes----|...      a tile's own rows y0 to y0 + VTILE_Y
//                     |<- early ->y0                          what it writes begins here
//
// The last tile of a row also writes what that leaves.
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

// Reads and writes one tile, with vectors on the sides that are said to allow them.
template <bool HINTS, bool VECTORS_IN, bool VECTORS_OUT>
__device__ __forceinline__ void move_tile(Vector *tile, const T *in, T *out, unsigned nx, unsigned ny,
                                          unsigned x0, unsigned y0, unsigned idx)
{
    const int leading = VECTORS_OUT ? 0 : LEAD;
    // Only tiles at the edge check each access.
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

// Finds a block's tile and moves it, each side by vectors where its rows start at multiples of 16 bytes.
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
// Blocks are numbered down the rows first, so that blocks which run together fill the same rows of `out` from end to
// end. What remains is the memory: it serves long rows on one side and pieces of 256 bytes on the other a little slower
// than a copy's.
// A side whose rows are not a multiple of 16 bytes moves single elements.
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCK < 256 ? 4 : RESIDENT / BLOCK)
transpose_vector(const T *__restrict__ in, T *__restrict__ out, int nx, int ny)
{
    __shared__ Vector tile[VTILE_X * VPITCH];

    move_vectors<false>(tile, in, out, nx, ny);
}

// This rung is for rows that start anywhere. Rows VEC apart begin at the same place between two multiples of 16
// bytes: read from the multiple before, their vectors hold the same columns. So rows y, y + VEC, y + 2 VEC, y + 3 VEC
// make a quad, which is turned in registers as before. For float and rows of 7 columns, of which row 1 starts at 7:
//
//     row 1   . . . a | b c d e | f g          vectors from 4 on: the first has only one column of the row
//     row 5   . . . p | q r s t | u v          starts at 35 = 4 * 8 + 3, like row 1
//
// A tile row holds the quads of y % VEC = 0 first, then those of 1, ...: neighbours of a column lie apart, and a lane
// collects the four that it writes as one vector.
// Of smaller elements a vector holds too many for that. Their rows are read as two vectors each, shifted in registers
// to where the tile begins, and turned as in `vector`; what is written is shifted from two vectors of the tile as well.
// Rows begin and end amid lines of the L2 cache, of which a neighbour has the rest: each read asks for all 128 bytes.
#ifndef LANES
#define LANES (sizeof(T) < 4 ? 8 * (int)sizeof(T) : 32)  // that read a row side by side
#endif
#ifndef RAGGED_BLOCKS
#define RAGGED_BLOCKS (BLOCK < 256 ? 4 : 1024 / BLOCK)  // on an SM; the host's choice where there are few tiles
#endif
#define RTILE_X ((LANES - (sizeof(T) < 4 ? 0 : 1)) * VEC)  // columns of `in` in a tile: floats read a vector more
#ifndef RLEAD                           // the host's choice: none where every row of `out` starts at 32 bytes
#define RLEAD (32 / (int)sizeof(T))     // rows read ahead of a tile, so that what it writes begins at 32 bytes
#endif
#define RHIGH (256 / (int)sizeof(T))    // rows read
#define RTILE_Y (RHIGH - RLEAD)         // rows of `in` in a tile
#define RWIDE (RHIGH / VEC)             // vectors that a row of the tile is written as

// Returns where element y of row x of the transposed tile lies.
__device__ __forceinline__ unsigned ragged_place(unsigned x, unsigned y)
{
    return x * RHIGH + (y % VEC * RWIDE + y / VEC ^ x / VEC % 8 * 4);
}

// Returns the 16 bytes of `in` that begin with element `from`, those that there are: a matrix of `size` elements.
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

// Returns the 16 bytes that begin `by` bytes after the first of two vectors' 32.
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

// Reads the tile for elements under 4 bytes.
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
        unsigned before[4];  // elements that the row's first vector has ahead of x
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

// Returns VEC elements of row x of the transposed tile, from element `at` on; beyond its end they are any.
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

template <bool INSIDE>
__device__ __forceinline__ void read_ragged(T *tile, const T *in, unsigned nx, unsigned ny, unsigned x0, unsigned y0,
                                            unsigned idx)
{
    const unsigned count = LANES * RHIGH / 4;
#pragma unroll 2
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, v = i % LANES, quad = i / LANES;
        unsigned at = quad / VEC * 4 * VEC + quad % VEC, y = y0 - RLEAD + at;
        unsigned before = (y * nx + x0) % VEC;  // columns that the first vector has ahead of the tile's
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

template <bool INSIDE>
__device__ __forceinline__ void write_ragged(const T *tile, T *out, unsigned nx, unsigned ny, unsigned x0, unsigned y0,
                                             unsigned idx)
{
    const unsigned count = RTILE_X * RWIDE;
    bool last = y0 + RTILE_Y >= ny;  // of its column of tiles: it writes what starting early has left
#pragma unroll 2
    for (unsigned first = 0; first < count; first += BLOCK) {
        unsigned i = first + idx, x = i / RWIDE, col = i % RWIDE * VEC;
        unsigned early = RLEAD ? ((x0 + x) * ny + y0) & (RLEAD - 1) : 0, at = RLEAD + col - early, y = y0 + col - early;
        bool writes = col < RTILE_Y || (!INSIDE && last);
        if (count % BLOCK && i >= count)
            break;
        Vector v = elements_of(tile, x, at % RHIGH);  // lanes that write nothing take any
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
// What vector moves element by element takes half of the instructions here. A tile is 124 columns wide, so that few of
// the sectors that its rows begin and end in are read twice. What remains: each vector that is written has to be
// collected from four places. Where all rows are aligned, vector is faster.
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
    // Only tiles at the edge check each access. The last vector of a row may reach into the row after it, if there is one.
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

// The last rung is `vector` again, but its reads say what else will be wanted. A tile takes 256 bytes of a row. Where
// rows of `in` are not a multiple of 256 bytes long, they begin and end amid aligned 256 bytes, of which a neighbour has
// the rest. A plain read brings only the sectors of 32 bytes that it needs, and the memory is visited twice; with the
// hint the first block to come brings all of them, and the neighbour, a column of tiles later, finds its own in L2:
//
//     memory   |------- 256 bytes -------|------- 256 bytes -------|------- 256 bytes -------|
//     a row     . . . . . . | what one tile takes     | what the next takes     | . . . . . .
//
// Where rows are aligned nothing else is wanted of those 256 bytes, and the hint names the 128 of a line of the cache.

// Moves what vector moves, and names in each read the bytes around it that the L2 cache should bring along (FETCH).
extern "C" __global__ void __launch_bounds__(BLOCK, BLOCK < 256 ? 4 : RESIDENT / BLOCK)
transpose_prefetch(const T *__restrict__ in, T *__restrict__ out, int nx, int ny)
{
    __shared__ Vector tile[VTILE_X * VPITCH];

    move_vectors<true>(tile, in, out, nx, ny);
}
