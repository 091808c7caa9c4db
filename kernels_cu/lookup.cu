// Look-up in a table: out[i] = the table around element index[i], under a filter of 3 x 3 weights, for n elements.
//
// The table is a square of WIDTH x WIDTH elements, small enough for every cache; index[i] names one of its elements,
// and a neighbour beyond the border is the nearest element on the border. Each index is read once and each result
// written once: n * (4 + sizeof(T)) bytes; the table is small compared with them. But each result needs nine elements
// of the table, which neighbouring results do not share. So the speed depends on how many of 32 scattered reads a
// memory serves at a time: global memory through its cache, constant memory, shared memory or the texture units.
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
// The threads of a warp share only the weights: their reads of the table touch up to 32 sectors, while 32 neighbouring
// elements lie in 4. What remains: the cache serves one line after the other.
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
// On Kepler, whose L1 holds no global data, that uses the texture cache. Since Volta all loads share one cache, and
// only the compiler gains: it may move loads past stores. This kernel has no such stores, so all cost remains.
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
// loads of the table, each of up to 32 sectors.
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
// If a warp looks up a single element (--index same), a read takes one turn. What remains: a read takes as many turns
// as there are different addresses, up to 32, since constant memory serves one address at a time.
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
// Of 32 random addresses three or four fall into one bank. Copying the table pays only for many results, so there are
// few blocks, which stride. What remains: the conflicts, and the arithmetic that keeps neighbours inside the border.
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

// From here the table is a texture, which the texture units read. The simulator does not count their reads, because
// NVIDIA does not document how they serve a warp. On an H200 they are not the fastest: 605 and 664 us for 2^25 results,
// while global memory takes 400 and shared memory 155.

// Fetches the table as a texture of one dimension over the same memory.
// A texture read has no bank conflicts and no queue of cache lines: a texture unit takes one texel per lane, and the
// four units of a multiprocessor serve a warp in eight turns, for any addresses. What remains: more turns than shared
// memory takes, and the code that keeps neighbours inside the border.
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
// The code needs no border tests, and neighbours above each other are close in memory, since such a texture is stored
// in tiles. What remains: the turns, and coordinates that are floats, with texel centres at halves; computing them
// takes as many instructions as the border tests did.
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
