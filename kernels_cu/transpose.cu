// Matrix transpose: out[x][y] = in[y][x].
//
// in is ny rows by nx columns, out is nx rows by ny columns, both row-major, of element type T.
// No arithmetic, only movement: each element is read once and written once, 2 * nx * ny * sizeof(T) bytes.
// A copy moves the same bytes, so the fastest copy is the ceiling of the ladder. The difficulty: a warp that reads 32
// neighbours of a row must write 32 elements of a column, each in its own memory sector.
//
// Read the ladder from top to bottom. Each kernel differs from an earlier one by a few lines; its comment names them,
// the bottleneck that they remove, and the bottleneck that remains. The ladder ends in transpose_fast.cu;
// transpose_ragged.cu is for rows of any length.
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
#define TILE 32  // edge of the square tiles of tile-rows and swizzle, whatever the block
#endif

#define BLOCK (BDIMX * BDIMY)                            // threads in a block
#define BANK_ROW (128 / (int)sizeof(T))                  // elements in one row of the 32 banks
#define PAD_EVERY (BDIMX > BANK_ROW ? BDIMX : BANK_ROW)  // a row of the tile, or of the banks if that is longer
#define PADDED(i) ((i) + (i) / PAD_EVERY * IPAD)         // where element i of a padded tile lies
#define TILES 2                                          // side by side in smem-unroll-pad
#define IN_TILE(i) (TILE * TILE % BLOCK == 0 || (i) < TILE * TILE)

// Copies one element a thread without transposing, row by row: the ceiling of kernels with one element a thread.
// A warp reads and writes neighbours, so nothing is wasted. What remains: a thread has one element under way. Kernels
// with several elements a thread, such as smem-unroll-pad, can be faster than this copy.
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
// For the second half, threads get new positions: neighbours follow a row of the transposed tile.
// What remains: a warp reads a column of the tile. Its elements share few banks, so the bank conflicts queue up.
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
// Rows shorter than the 32 banks share one padding: only then is a 16x16 tile free of conflicts.
// What remains: a thread has one element under way, too little to hide the memory's latency.
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

// The next five kernels are a detour without shared memory. All are slower than smem-unroll-pad; the ladder goes on at
// tile-rows.

// Copies without transposing, column by column: what strided access costs when both sides have it.
// From here to diagonal-col the grid covers out: x runs over its ny columns, y over its nx rows; not in diagonal-row.
// What remains: neighbouring threads are nx elements apart in both matrices, so each access of a warp touches up to 32
// sectors.
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
// On early GPUs, blocks in one column of tiles queued at one memory partition. Today's GPUs hash addresses over the
// partitions, so nothing is won. What remains: the strided writes.
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
// The order decides which blocks share the cache at one time. What remains: the sectors fetched for each warp stay the
// same.
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
// Rows are 32 elements long on both sides, whatever the block. A thread's loads are under way together, because no
// branch stands before them: beyond the edge they load the last row or column of in again.
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
