// Pi as the integral of 4 / (1 + x^2) from 0 to 1, by the midpoint rule: out[0] = h * sum over i of 4 / (1 + x_i^2)
// with h = 1 / n and x_i = (i + 1/2) * h. The rule itself is off by h^2 / 12.
//
// No array is read, so arithmetic is the limit, not memory. A step is 6 operations; the division takes longest: a
// multiprocessor of an H200 (compute capability 9.0) does 128 additions of floats a clock, but only 16 reciprocals and
// 16 conversions from float to double (table of throughputs in the CUDA C++ Programming Guide). The sum is a reduction
// in two launches: the first leaves a partial sum for each block, the second adds them with one block.
//
// Terms are of type T. Sums are double for every T: thousands of terms added in float would lose their last digits.
// BDIMX is the number of threads of a block; the block need not be a power of two, nor whole warps.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 256
#endif

#define WARP 32
#define WARPS ((BDIMX + WARP - 1) / WARP)
#define WARPS_POW2 (WARPS > 16 ? 32 : WARPS > 8 ? 16 : WARPS > 4 ? 8 : WARPS > 2 ? 4 : WARPS)  // rounded up
#define BLOCK_POW2 (WARPS_POW2 * WARP)
#ifndef STEPS
#define STEPS 16  // steps that follow each other and belong to one thread; a multiple of 4
#endif

// Adds the block's sums as a tree: in each step half as many threads add a partner's sum to their own. Thread 0
// returns the total.
__device__ __forceinline__ double tree_sum(double sum)
{
    __shared__ double part[BDIMX];

    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = BLOCK_POW2 / 2; half > 0; half /= 2) {
        if (threadIdx.x < half && threadIdx.x + half < BDIMX)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

// Second pass of all rungs, one block: adds the partial sums and multiplies by the step.
extern "C" __global__ void pi_finish(const double *partial, T *out, int blocks, int n)
{
    double sum = 0;
#pragma unroll 4
    for (int i = threadIdx.x; i < blocks; i += BDIMX)
        sum += partial[i];
    sum = tree_sum(sum);
    if (threadIdx.x == 0)
        out[0] = sum / n;
}

__device__ __forceinline__ T height(T x) { return (T)4 / ((T)1 + x * x); }

// Strides over the steps, one at a time, and adds up each block's sums in shared memory.
// The tree needs a barrier in each of its steps. What remains: each step of the sum converts its number to T, divides,
// and converts the quotient to double, three operations at an eighth of the rate of an addition on an H200.
extern "C" __global__ void pi_block(double *partial, int n)
{
    const T h = (T)1 / n;
    double sum = 0;
    for (unsigned i = blockIdx.x * BDIMX + threadIdx.x; i < n; i += gridDim.x * BDIMX)
        sum += height((i + (T)0.5) * h);
    sum = tree_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// Adds the sums of the first `lanes` lanes of a warp by shuffles: each lane adds the sum of the lane `half` above it.
// Lane 0 returns the total; the results of the other lanes are not used.
__device__ __forceinline__ double warp_sum(double sum, unsigned lanes)
{
#pragma unroll
    for (unsigned half = WARP / 2; half > 0; half /= 2) {
        double other = __shfl_down_sync(0xFFFFFFFF >> (WARP - lanes), sum, half);
        if (BDIMX % WARP == 0 || threadIdx.x % WARP + half < lanes)
            sum += other;
    }
    return sum;
}

// Adds the block's sums, first within warps, then the warps' sums within the first warp. Thread 0 returns the total.
__device__ __forceinline__ double block_sum(double sum)
{
    __shared__ double part[WARPS];

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

// Adds within a warp through registers: one barrier a block instead of one a step of the tree.
// It shows where blocks are short of work. What remains, where each thread has many steps: these are as slow as before.
extern "C" __global__ void pi_shuffle(double *partial, int n)
{
    const T h = (T)1 / n;
    double sum = 0;
    for (unsigned i = blockIdx.x * BDIMX + threadIdx.x; i < n; i += gridDim.x * BDIMX)
        sum += height((i + (T)0.5) * h);
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// Gives a thread STEPS steps in a row, whose x differ by a constant and whose heights are added in T.
// One conversion to T and one to double serve all of them. 16 terms round the sum by a few units in the last place,
// which the next 16 do not add to. Of what is slow the division remains.
extern "C" __global__ void pi_steps(double *partial, int n)
{
    const T h = (T)1 / n;
    double sum = 0;
    for (size_t i = ((size_t)blockIdx.x * BDIMX + threadIdx.x) * STEPS; i < n; i += (size_t)gridDim.x * BDIMX * STEPS) {
        const T x = ((unsigned)i + (T)0.5) * h;
        T some = 0;
        if (i + STEPS <= n)
#pragma unroll
            for (int k = 0; k < STEPS; k++)
                some += height(x + k * h);
        else
            for (int k = 0; k < n - (int)i; k++)
                some += height(x + k * h);
        sum += some;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

// A division without the branch for very large or very small operands, which would keep the steps from overlapping.
// For float its error is at most two units in the last place.
__device__ __forceinline__ float quotient(float a, float b) { return __fdividef(a, b); }
__device__ __forceinline__ double quotient(double a, double b) { return a / b; }

// Returns 1/a + 1/b + 1/c + 1/d with one division.
__device__ __forceinline__ T four_reciprocals(T a, T b, T c, T d)
{
    T ab = a * b, cd = c * d;
    return quotient((a + b) * cd + (c + d) * ab, ab * cd);
}

// Brings four steps over a common denominator: one division and seven cheap operations for four divisions.
// The denominators lie between 1 and 2, so their product is harmless and the division may be a plain one. What remains
// are additions and multiplications, about five for each step, which the multiprocessor issues at its full rate.
extern "C" __global__ void pi_fused(double *partial, int n)
{
    const T h = (T)1 / n;
    double sum = 0;
    for (size_t i = ((size_t)blockIdx.x * BDIMX + threadIdx.x) * STEPS; i < n; i += (size_t)gridDim.x * BDIMX * STEPS) {
        const T x = ((unsigned)i + (T)0.5) * h;
        T some = 0;
        if (i + STEPS <= n)
#pragma unroll
            for (int k = 0; k < STEPS; k += 4) {
                T p = x + k * h, q = x + (k + 1) * h, r = x + (k + 2) * h, s = x + (k + 3) * h;
                some += (T)4 * four_reciprocals(1 + p * p, 1 + q * q, 1 + r * r, 1 + s * s);
            }
        else
            for (int k = 0; k < n - (int)i; k++)
                some += height(x + k * h);
        sum += some;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}
