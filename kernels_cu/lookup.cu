// Look-up in a table: out[i] = the table around element index[i], under a filter of 3 x 3 weights, for n elements.
//
// The table is a square of WIDTH x WIDTH elements, small enough for every cache; index[i] names one of its elements,
// and neighbours beyond its border are those on it. Each index is read once and each result written once:
// n * (4 + sizeof(T)) bytes; the table is small compared with them. But each result needs nine elements of the table
// that its neighbours do not need. So the speed depends on how many of 32 scattered reads a memory serves at a time:
// global memory through its cache, constant memory, shared memory or the texture units.
//
// Read the ladder from top to bottom: each comment names what changes, what that removes and what remains.
// BDIMX is the number of threads of a block. Indices are size_t because the grid may reach beyond 2^32.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 256
#endif

#define WIDTH 64             // elements of a row of the table, and rows
#define CELLS (WIDTH * WIDTH)

__device__ __forceinline__ int inside(int at) { return min(max(at, 0), WIDTH - 1); }

// Looks up in global memory, one result a thread: nine reads of the table and nine of the filter.
// The threads of a warp share the weights and nothing else: their reads of the table touch up to 32 sectors, where 4
// would hold as many elements side by side. What remains: the cache looks through one line after the other.
extern "C" __global__ void lookup_global(const T *table, const T *filter, const int *index, T *out, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n) {
        int x = index[i] % WIDTH, y = index[i] / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += filter[k] * table[inside(y + k / 3 - 1) * WIDTH + inside(x + k % 3 - 1)];
        out[i] = sum;
    }
}

// Reads the table and the filter with __ldg, which promises that nobody writes them while the kernel runs.
// On Kepler, whose L1 holds no global data, that puts them into the texture cache; since Volta all loads share one cache,
// and only the compiler gains, which may move them past stores. Here no stores lie between them, so all of it remains.
extern "C" __global__ void lookup_ldg(const T *table, const T *filter, const int *index, T *out, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n) {
        int x = __ldg(index + i) % WIDTH, y = __ldg(index + i) / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += __ldg(filter + k) * __ldg(table + inside(y + k / 3 - 1) * WIDTH + inside(x + k % 3 - 1));
        out[i] = sum;
    }
}

// The host fills both variables before the launch; constant memory has 64 KiB in total.
__constant__ T constant_filter[9];
__constant__ T constant_table[CELLS];

// Takes the filter from constant memory: all lanes want the same weight, and one read serves them.
// Such a read is an operand of the multiplication, so nine of eighteen loads are gone. What remains: the nine scattered
// ones, each up to 32 sectors.
extern "C" __global__ void lookup_constant_uniform(const T *table, const T *, const int *index, T *out, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n) {
        int x = index[i] % WIDTH, y = index[i] / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += constant_filter[k] * table[inside(y + k / 3 - 1) * WIDTH + inside(x + k % 3 - 1)];
        out[i] = sum;
    }
}

// Takes the table from constant memory too, where it does not belong: each lane wants another element.
// Where the 32 results of a warp look up one element (--index same) that is one turn. What remains: a read takes as
// many turns as there are addresses, up to 32, since constant memory serves one at a time, to all lanes that want it.
extern "C" __global__ void lookup_constant_lane(const T *, const T *, const int *index, T *out, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n) {
        int x = index[i] % WIDTH, y = index[i] / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += constant_filter[k] * constant_table[inside(y + k / 3 - 1) * WIDTH + inside(x + k % 3 - 1)];
        out[i] = sum;
    }
}

// Copies the table to shared memory first, whose 32 banks serve 32 addresses at once unless they meet in one bank.
// Of 32 random addresses three or four do. A copy of the whole table pays only for many results, so the blocks are few
// and stride. What remains: the conflicts, and the arithmetic that keeps neighbours inside the border.
extern "C" __global__ void lookup_shared(const T *table, const T *, const int *index, T *out, int n)
{
    __shared__ T shared_table[CELLS];

    for (int cell = threadIdx.x; cell < CELLS; cell += BDIMX)
        shared_table[cell] = table[cell];
    __syncthreads();

    for (size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x; i < n; i += (size_t)gridDim.x * BDIMX) {
        int x = index[i] % WIDTH, y = index[i] / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += constant_filter[k] * shared_table[inside(y + k / 3 - 1) * WIDTH + inside(x + k % 3 - 1)];
        out[i] = sum;
    }
}

// From here the table is a texture, which the texture units read. The simulator does not count their reads: how they
// serve a warp is not documented. On an H200 they no longer win: 605 and 664 us for 2^25 results where global memory takes
// 400 and shared memory 155.

// Fetches the table as a texture of one dimension over the same memory.
// The lanes of a read share no banks and no lines that they would wait for in turn: a texture unit takes a texel a lane,
// and the four of a multiprocessor serve a warp in eight turns, wherever its lanes look. What remains: more turns than
// shared memory takes, and neighbours that are kept inside the border by hand.
extern "C" __global__ void lookup_texture_1d(cudaTextureObject_t table, const T *, const int *index, T *out, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n) {
        int x = index[i] % WIDTH, y = index[i] / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += constant_filter[k] * tex1Dfetch<T>(table, inside(y + k / 3 - 1) * WIDTH + inside(x + k % 3 - 1));
        out[i] = sum;
    }
}

// Fetches it as a texture of two dimensions, whose unit takes a place beyond the border for the one on it.
// The border is gone from the code, and neighbours above each other lie near each other, since such a texture is stored
// in tiles. What remains: the turns, and places that are numbers with a fraction, whose centres are at halves: to make
// them takes as many instructions as the border did.
extern "C" __global__ void lookup_texture_2d(cudaTextureObject_t table, const T *, const int *index, T *out, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n) {
        int x = index[i] % WIDTH, y = index[i] / WIDTH;
        T sum = 0;
#pragma unroll
        for (int k = 0; k < 9; k++)
            sum += constant_filter[k] * tex2D<T>(table, x + k % 3 - 0.5f, y + k / 3 - 0.5f);
        out[i] = sum;
    }
}
