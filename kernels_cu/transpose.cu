// Matrix transpose: out[x][y] = in[y][x].
//
// in is ny rows by nx columns, out is nx rows by ny columns, both row-major, of element type T.
// No arithmetic, only movement: each element is read once and written once, 2 * nx * ny * sizeof(T) bytes.
// A copy moves the same bytes, so its speed is the ceiling. The difficulty is that a warp which reads 32
// neighbours of a row must write 32 elements of a column, each in a memory sector of its own.
//
// Read the ladder from top to bottom: every kernel differs from an earlier one by a few lines, which its
// comment names together with the bottleneck they remove and the one they leave.
// BDIMX and BDIMY are the threads of a block; x runs along a row of the matrix that the grid covers.
// Offsets are size_t because nx * ny may exceed 2^32.

#ifndef TYPE
#define TYPE float
#endif
#ifndef BDIMX
#define BDIMX 32
#endif
#ifndef BDIMY
#define BDIMY 8
#endif
#ifndef IPAD
#define IPAD 1
#endif

#ifndef T  // T is #defined ahead of this text by the host; -DTYPE serves a plain nvcc
typedef TYPE T;
#endif

#define BLOCK (BDIMX * BDIMY)                            // threads in a block
#define BANK_ROW (128 / (int)sizeof(T))                  // elements in one row of the 32 banks
#define PAD_EVERY (BDIMX > BANK_ROW ? BDIMX : BANK_ROW)  // a row of the tile, or of the banks if that is longer
#define PADDED(i) ((i) + (i) / PAD_EVERY * IPAD)         // where element i of a padded tile lies
#define TILE 32                                          // edge of the square tiles that no longer follow the block
#define IN_TILE(i) (TILE * TILE % BLOCK == 0 || (i) < TILE * TILE)

// Copies one element a thread without transposing, row by row: the ceiling for kernels of this shape.
// A warp reads and writes neighbours, so nothing is wasted; larger accesses could only keep more bytes in flight.
extern "C" __global__ void transpose_copy_row(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < nx && iy < ny)
        out[(size_t)iy * nx + ix] = in[(size_t)iy * nx + ix];
}

// Reads rows and writes columns, one element a thread.
// The reads of a warp are neighbours, but its writes are ny elements apart: up to 32 sectors of 32 bytes for
// 32 elements. A narrower block writes longer pieces of a row of out and reads shorter ones.
extern "C" __global__ void transpose_naive_row(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < nx && iy < ny)
        out[(size_t)ix * ny + iy] = in[(size_t)iy * nx + ix];
}

// Turns the tile round in shared memory, so that reads and writes are both coalesced.
// The threads are numbered anew for the second half: neighbours now follow a row of the transposed tile.
// They walk down a column of the tile in shared memory, and its elements share few banks: the accesses queue up.
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
// The index arithmetic is shared as well. The pieces of a row that a block writes are still only BDIMY long.
extern "C" __global__ void transpose_smem_unroll_pad(const T *in, T *out, int nx, int ny)
{
    __shared__ T tile[2][PADDED(BLOCK)];

    unsigned ix = blockIdx.x * BDIMX * 2 + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    unsigned icol = idx % BDIMY;
    unsigned irow = idx / BDIMY;
    unsigned ox = blockIdx.y * BDIMY + icol;
    unsigned oy = blockIdx.x * BDIMX * 2 + irow;

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

// Copies without transposing, column by column: what strided access costs when both sides have it.
// Neighbouring threads are nx elements apart in both matrices, so each access of a warp touches up to 32 sectors.
// From here the grid covers out: x runs over its ny columns, y over its nx rows.
extern "C" __global__ void transpose_copy_col(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < ny && iy < nx)
        out[(size_t)ix * nx + iy] = in[(size_t)ix * nx + iy];
}

// Reads columns and writes rows, one element a thread.
// Faster than naive-row: a sector that a strided read fetches stays in the cache for the next rows of the block,
// while a strided write leaves the chip in pieces. The strided reads still cost up to 32 sectors a warp.
extern "C" __global__ void transpose_naive_col(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

    if (ix < ny && iy < nx)
        out[(size_t)iy * ny + ix] = in[(size_t)ix * nx + iy];
}

// Gives each thread four elements of naive-col, BDIMX apart, so that four loads are under way at once.
// That hides latency, but the sectors fetched for each warp stay the same.
extern "C" __global__ void transpose_naive_col_unroll(const T *in, T *out, int nx, int ny)
{
    unsigned ix = blockIdx.x * BDIMX * 4 + threadIdx.x;
    unsigned iy = blockIdx.y * BDIMY + threadIdx.y;

#pragma unroll
    for (int k = 0; k < 4; k++, ix += BDIMX)
        if (ix < ny && iy < nx)
            out[(size_t)iy * ny + ix] = in[(size_t)ix * nx + iy];
}

// Renumbers the blocks of naive-row along diagonals, so that blocks that run together differ in row and column.
// On early GPUs blocks in one column of tiles queued at one memory partition. Today addresses are hashed over
// the partitions, and little remains to be won; the strided writes are still there.
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
// The same change for strided reads: it decides which blocks share the cache at one time, and the sectors
// fetched for each warp stay the same.
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

// Moves a 32x32 tile with any block: 32x8 threads take four rows each.
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

// The last rung moves 16 bytes an access: VEC elements of a row, in tiles of VTILE_Y rows by VTILE_X columns (16 KiB).
#define VEC (16 / (int)sizeof(T))
#define VECS_X (sizeof(T) < 4 ? 8 : 16)      // vectors in a row of the tile in in
#define VTILE_X (VECS_X * VEC)
#define VTILE_Y (1024 / VECS_X)
#define VECS_Y (VTILE_Y / VEC)               // vectors in a row of the tile in out
#define QUADS (VTILE_Y / 4)                  // groups of four rows

union Vector { uint4 all; T at[VEC]; };                    // 16 bytes of a row
struct __align__(sizeof(T) < 4 ? 4 * sizeof(T) : 16) Quad { T at[4]; };  // four elements of a column

// The tile in shared memory is transposed: VTILE_X rows of VTILE_Y elements. The vectors of row x are exchanged
// by XOR with this number, so that both the quads stored and the vectors read lie in different banks.
__device__ __forceinline__ unsigned swizzled(unsigned x, unsigned v)
{
    return x * VECS_Y + (v ^ ((x / VEC ^ x) & 7));
}

__device__ __forceinline__ void store_quad(Vector *tile, unsigned x, unsigned quad, const Quad &q)
{
    const int quads = sizeof(T) < 4 ? VEC / 4 : 1;         // in a vector
    const int parts = sizeof(T) > 4 ? 2 : 1;               // vectors in a quad
    if (parts == 2) {
        tile[swizzled(x, quad * 2)].all = ((const uint4 *)&q)[0];
        tile[swizzled(x, quad * 2 + 1)].all = ((const uint4 *)&q)[1];
    } else
        *(Quad *)&tile[swizzled(x, quad / quads)].at[quad % quads * 4] = q;
}

// Reads the tile into shared memory: each thread takes 16 bytes from each of four rows and turns them in registers.
template <bool INSIDE>
__device__ __forceinline__ void read_vectors(Vector *tile, const T *in, unsigned nx, unsigned ny,
                                             unsigned x0, unsigned y0, unsigned idx)
{
#pragma unroll
    for (unsigned i = idx; i < VECS_X * QUADS; i += BLOCK) {
        unsigned col = i % VECS_X * VEC, quad = i / VECS_X;
        const T *from = in + (size_t)(y0 + quad * 4) * nx + x0 + col;
        Vector row[4] = {};
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (INSIDE || (x0 + col < nx && y0 + quad * 4 + r < ny))
                row[r].all = *(const uint4 *)(from + (size_t)r * nx);
#pragma unroll
        for (int c = 0; c < VEC; c++) {
            Quad q = {row[0].at[c], row[1].at[c], row[2].at[c], row[3].at[c]};
            store_quad(tile, col + c, quad, q);
        }
    }
}

// The same where rows of in do not start at multiples of 16 bytes: one element a load, neighbours along the row.
__device__ __forceinline__ void read_elements(Vector *tile, const T *in, unsigned nx, unsigned ny,
                                              unsigned x0, unsigned y0, unsigned idx)
{
#pragma unroll 4
    for (unsigned i = idx; i < VTILE_X * QUADS; i += BLOCK) {
        unsigned col = i % VTILE_X, quad = i / VTILE_X;
        const T *from = in + (size_t)(y0 + quad * 4) * nx + x0 + col;
        Quad q = {};
#pragma unroll
        for (int r = 0; r < 4; r++)
            if (x0 + col < nx && y0 + quad * 4 + r < ny)
                q.at[r] = from[(size_t)r * nx];
        store_quad(tile, col, quad, q);
    }
}

template <bool INSIDE>
__device__ __forceinline__ void write_vectors(const Vector *tile, T *out, unsigned nx, unsigned ny,
                                              unsigned x0, unsigned y0, unsigned idx)
{
#pragma unroll
    for (unsigned i = idx; i < VTILE_X * VECS_Y; i += BLOCK) {
        unsigned v = i % VECS_Y, x = i / VECS_Y;
        if (INSIDE || (y0 + v * VEC < ny && x0 + x < nx))
            *(uint4 *)(out + (size_t)(x0 + x) * ny + y0 + v * VEC) = tile[swizzled(x, v)].all;
    }
}

__device__ __forceinline__ void write_elements(const Vector *tile, T *out, unsigned nx, unsigned ny,
                                               unsigned x0, unsigned y0, unsigned idx)
{
#pragma unroll 4
    for (unsigned i = idx; i < VTILE_X * VTILE_Y; i += BLOCK) {
        unsigned y = i % VTILE_Y, x = i / VTILE_Y;
        if (y0 + y < ny && x0 + x < nx)
            out[(size_t)(x0 + x) * ny + y0 + y] = tile[swizzled(x, y / VEC)].at[y % VEC];
    }
}

// Moves 16 bytes an access on both sides, transposing in registers on the way to a swizzled 16 KiB tile.
// A quarter of the instructions for float, and 64 bytes under way in each thread. Blocks are numbered down the
// rows first, so that blocks that run together write neighbouring pieces of the same rows of out.
// What remains is the memory itself. Where nx or ny is no multiple of VEC, that side moves single elements.
extern "C" __global__ void __launch_bounds__(BLOCK)
transpose_vector(const T *__restrict__ in, T *__restrict__ out, int nx, int ny)
{
    __shared__ Vector tile[VTILE_X * VECS_Y];

    unsigned tiles_y = ((unsigned)ny + VTILE_Y - 1) / VTILE_Y;
    unsigned x0 = blockIdx.x / tiles_y * VTILE_X;
    unsigned y0 = blockIdx.x % tiles_y * VTILE_Y;
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x;
    bool inside = x0 + VTILE_X <= nx && y0 + VTILE_Y <= ny;

    if (nx % VEC != 0)
        read_elements(tile, in, nx, ny, x0, y0, idx);
    else if (inside)
        read_vectors<true>(tile, in, nx, ny, x0, y0, idx);
    else
        read_vectors<false>(tile, in, nx, ny, x0, y0, idx);
    __syncthreads();
    if (ny % VEC != 0)
        write_elements(tile, out, nx, ny, x0, y0, idx);
    else if (inside)
        write_vectors<true>(tile, out, nx, ny, x0, y0, idx);
    else
        write_vectors<false>(tile, out, nx, ny, x0, y0, idx);
}
