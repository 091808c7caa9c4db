// Euclidean distance: out[0] = sqrt(sum over i of (a[i] - b[i])^2) for two vectors of n elements of type T.
//
// Both vectors are read once, 2 * n * sizeof(T) bytes; the rest is a reduction of n differences to one number. A block
// can add up its own elements in shared memory, but blocks cannot wait for each other. So each block writes a partial
// sum to device memory, and a second step adds these. The order of additions is fixed: two runs agree in every bit.
//
// Differences of type T are squared and summed in type S: float in float, double in double, and int in long long,
// where no square overflows and the sum is exact. out has type R, float for float and double otherwise.
// BDIMX is the number of threads of a block; the block need not be a power of two, nor whole warps.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 256
#endif

template <typename E> struct Types { typedef E Sum; typedef E Root; };
template <> struct Types<int> { typedef long long Sum; typedef double Root; };
typedef Types<T>::Sum S;
typedef Types<T>::Root R;

#define WARP 32
#define WARPS ((BDIMX + WARP - 1) / WARP)
#define WARPS_POW2 (WARPS > 16 ? 32 : WARPS > 8 ? 16 : WARPS > 4 ? 8 : WARPS > 2 ? 4 : WARPS)  // rounded up
#define BLOCK_POW2 (WARPS_POW2 * WARP)
#define VEC (16 / (int)sizeof(T))  // elements in 16 bytes
#ifndef UNROLL
#define UNROLL 4  // vectors of a and of b that a thread has in flight
#endif

__device__ __forceinline__ S squared(T a, T b)
{
    S d = (S)a - (S)b;
    return d * d;
}

__device__ __forceinline__ float root(float x) { return sqrtf(x); }
__device__ __forceinline__ double root(double x) { return sqrt(x); }
__device__ __forceinline__ double root(long long x) { return sqrt((double)x); }

// Adds the block's sums as a tree: in each step half as many threads add a partner's sum to their own. Thread 0
// returns the total.
__device__ __forceinline__ S tree_sum(S sum)
{
    __shared__ S part[BDIMX];

    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = BLOCK_POW2 / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && threadIdx.x + half < BDIMX)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

// Second pass of all rungs but the last, one block: adds the partial sums and takes the root.
extern "C" __global__ void distance_finish(const S *partial, R *out, int blocks)
{
    S sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < blocks; i += BDIMX)
        sum += partial[i];
    sum = tree_sum(sum);
    if (threadIdx.x == 0)
        out[0] = root(sum);
}

// Strides through the vectors, adds up each block's sums in shared memory, and the blocks' sums in a second launch.
// What remains: the tree halves the sums in each step and needs a barrier for each, ten for 1024 threads, while more
// and more threads idle.
extern "C" __global__ void distance_two_pass(const T *a, const T *b, S *partial, int n)
{
    S sum = 0;
    for (size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x; i < n; i += (size_t)gridDim.x * BDIMX)
        sum += squared(a[i], b[i]);
    sum = tree_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// Adds the sums of the first `lanes` lanes of a warp by shuffles: each lane adds the sum of the lane `half` above it.
// Lane 0 returns the total; the results of the other lanes are not used.
__device__ __forceinline__ S warp_sum(S sum, unsigned lanes)
{
#pragma unroll
    for (unsigned half = WARP / 2; half > 0; half /= 2) {
        S other = __shfl_down_sync(0xFFFFFFFF >> (WARP - lanes), sum, half);
        if (BDIMX % WARP == 0 || threadIdx.x % WARP + half < lanes)
            sum += other;
    }
    return sum;
}

// Adds the block's sums, first within warps, then the warps' sums within the first warp. Thread 0 returns the total.
__device__ __forceinline__ S block_sum(S sum)
{
    __shared__ S part[WARPS];

    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    sum = warp_sum(sum, min(WARP, BDIMX - warp * WARP));
    if (WARPS == 1)
        return sum;
    if (lane == 0)
        part[warp] = sum;
    __syncthreads();
    if (warp == 0)
        sum = warp_sum(lane < WARPS ? part[lane] : 0, WARP);
    return sum;
}

// Adds within a warp through registers instead of shared memory.
// A shuffle needs no barrier, so a block passes one barrier instead of one a step, and 32 sums lie in shared memory
// instead of BDIMX. That shows in short sums; in long ones what remains weighs more: a thread waits for two small loads
// before it issues the next ones.
extern "C" __global__ void distance_shuffle(const T *a, const T *b, S *partial, int n)
{
    S sum = 0;
    for (size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x; i < n; i += (size_t)gridDim.x * BDIMX)
        sum += squared(a[i], b[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

union Vector { uint4 all; T at[VEC]; };  // 16 bytes

// Returns a thread's part of the sum: whole tiles with UNROLL vectors for each thread, then single elements. ONCE: the
// loads tell the cache that the data will not be needed again.
template <bool ONCE>
__device__ __forceinline__ S vector_sum(const T *a, const T *b, size_t n)
{
    const size_t tile = (size_t)BDIMX * UNROLL * VEC;
    S sum = 0;
    size_t start = blockIdx.x * tile;
    for (; start + tile <= n; start += gridDim.x * tile) {
        Vector x[UNROLL], y[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const uint4 *p = (const uint4 *)(a + start) + u * BDIMX + threadIdx.x;
            const uint4 *q = (const uint4 *)(b + start) + u * BDIMX + threadIdx.x;
            x[u].all = ONCE ? __ldcs(p) : *p;
            y[u].all = ONCE ? __ldcs(q) : *q;
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
#pragma unroll
            for (int k = 0; k < VEC; k++)
                sum += squared(x[u].at[k], y[u].at[k]);
    }
    if (start < n)  // the last, incomplete tile: one block processes it
        for (size_t i = start + threadIdx.x; i < n; i += BDIMX)
            sum += squared(a[i], b[i]);
    return sum;
}

// Loads 16 bytes an access, UNROLL vectors of a and of b before the first is used.
// That keeps 128 bytes a thread under way, enough for the memory's full speed with half of the threads. What remains
// is the second launch: it waits until the first has ended, and costs a short sum some microseconds.
extern "C" __global__ void distance_vector(const T *a, const T *b, S *partial, int n)
{
    S sum = vector_sum<false>(a, b, n);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// Adds 1 to the number of blocks that have arrived, and returns how many arrived before. FENCES: a fence makes what
// thread 0 wrote before visible before the count. Otherwise the count itself does: it releases earlier writes to blocks
// that count later, and acquires what earlier blocks released.
template <bool FENCES>
__device__ __forceinline__ unsigned count_block(unsigned *arrived)
{
    if (FENCES) {
        __threadfence();
        return atomicInc(arrived, gridDim.x - 1);
    }
    unsigned before;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                 : "=r"(before) : "l"(arrived), "r"(gridDim.x - 1) : "memory");
    return before;
}

// Writes the block's sum; the block that arrives last adds the sums of all blocks.
template <bool ONCE, bool FENCES>
__device__ __forceinline__ void sum_at_once(const T *a, const T *b, volatile S *partial, unsigned *arrived, R *out,
                                            int n)
{
    __shared__ bool last;

    S sum = vector_sum<ONCE>(a, b, n);
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        last = count_block<FENCES>(arrived) == gridDim.x - 2 || gridDim.x == 1;
    }
    __syncthreads();
    if (!last)
        return;
    if (FENCES)
        __threadfence();  // so that the sums are read after the count
    sum = 0;
#pragma unroll 4
    for (unsigned i = threadIdx.x; i < gridDim.x; i += BDIMX)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[0] = root(sum);
}

// Leaves the second step to whichever block ends last, so that one launch does everything.
// A block writes its partial sum (the fence orders it before the count) and counts itself. The block that counts last
// adds the partial sums in the order of the blocks, so the result does not depend on which block is last. atomicInc
// wraps to 0 above gridDim.x - 1: from any value that large, such as that of the launch before, or memory full of ones,
// the blocks get that value, 0, 1, ... gridDim.x - 2. What remains is the memory, and the cache, which keeps data that
// is not read again.
extern "C" __global__ void distance_single_pass(const T *a, const T *b, volatile S *partial, unsigned *arrived, R *out,
                                                int n)
{
    sum_at_once<false, true>(a, b, partial, arrived, out, n);
}

// Marks what it reads as not needed again: it leaves the cache before all else does.
// So other data stays in the cache, and need not be written back to make room. On an H200 that saves a tenth of the
// time at 2^24 floats, 2.2 times its cache, and nothing at 2^20, which fit in it. More threads, with fewer vectors
// each, are faster here. What remains is the memory, and the end of the launch, in which nothing is read.
extern "C" __global__ void distance_streamed(const T *a, const T *b, volatile S *partial, unsigned *arrived, R *out,
                                             int n)
{
    sum_at_once<true, true>(a, b, partial, arrived, out, n);
}

// Lets the count order the sums, instead of two fences.
// __threadfence orders all accesses for all threads, which is more than this kernel needs: only the blocks that count
// later must see what a block wrote. A count that releases and acquires orders just that, and waits once. On an H200
// that saves 3% of the time at 2^20 floats. What remains is the memory.
extern "C" __global__ void distance_released(const T *a, const T *b, volatile S *partial, unsigned *arrived, R *out,
                                             int n)
{
    sum_at_once<true, false>(a, b, partial, arrived, out, n);
}
