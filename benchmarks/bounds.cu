// Kernels that make one term of the lower bounds as cheap as the hardware can: none may run faster than its bound; and
// kernels that wait for atomics, local memory or chains of loads. cudabench run --profile bounds.toml --kernel NAME

#define THREAD (blockIdx.x * blockDim.x + threadIdx.x)
#define STEPS 512

__device__ __forceinline__ unsigned mixed(unsigned x) {
    x *= 0x9E3779B1u;
    x ^= x >> 15;
    x *= 0x85EBCA77u;
    return x ^ x >> 13;
}

// ------------------------------------------------------------------------------------------------------ memory and L2

extern "C" __global__ void copy_vector(const float4 *in, float4 *out, int n) {
    int i = THREAD;
    if (i < n)
        out[i] = in[i];
}

extern "C" __global__ void read_once(const float4 *in, float *out, int n) {
    float sum = 0;
#pragma unroll 8
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x) {
        float4 v = in[i];
        sum += v.x + v.y + v.z + v.w;
    }
    out[THREAD] = sum;
}

extern "C" __global__ void write_only(float4 *out) {
    int i = THREAD;
    out[i] = make_float4(i, i + 1, i + 2, i + 3);
}

// Every block reads the same part of an array that lies in the L2.
extern "C" __global__ void read_again(const float4 *in, float *out, int n) {
    float sum = 0;
#pragma unroll 8
    for (int k = 0; k < 64; k++) {
        float4 v = __ldcg(in + (THREAD + k * 4096) % n);
        sum += v.x + v.y + v.z + v.w;
    }
    out[THREAD] = sum;
}

extern "C" __global__ void gather(const int *index, const float *in, float *out) {
    int i = THREAD;
    out[i] = in[index[i]];
}

// A few warps on each SM, one load after the other.
extern "C" __global__ void thin_stream(const float *in, float *out, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    out[THREAD] = sum;
}

// ---------------------------------------------------------------------------------------- stores of parts of a sector

extern "C" __global__ void store_fields5(float *out) {
    int i = THREAD;
#pragma unroll
    for (int k = 0; k < 5; k++)
        out[5 * i + k] = i + k;
}

extern "C" __global__ void store_fields12(float *out) {
    int i = THREAD;
#pragma unroll
    for (int k = 0; k < 12; k++)
        out[12 * i + k] = i + k;
}

extern "C" __global__ void store_pairs6(float2 *out) {
    int i = THREAD;
#pragma unroll
    for (int k = 0; k < 3; k++)
        out[3 * i + k] = make_float2(i, k);
}

extern "C" __global__ void store_vectors4(float4 *out) {
    int i = THREAD;
#pragma unroll
    for (int k = 0; k < 4; k++)
        out[4 * i + k] = make_float4(i, k, i, k);
}

extern "C" __global__ void store_pixels(unsigned char *out) {
    int i = THREAD;
    out[4 * i] = i;
    out[4 * i + 1] = i >> 8;
    out[4 * i + 2] = i >> 16;
    out[4 * i + 3] = 255;
}

extern "C" __global__ void store_shorts3(unsigned short *out) {
    int i = THREAD;
#pragma unroll
    for (int k = 0; k < 3; k++)
        out[3 * i + k] = i + k;
}

// One field of a structure, never the others.
extern "C" __global__ void store_one_of8(float *out) { out[8 * THREAD] = THREAD; }

extern "C" __global__ void store_one_of32(float *out) { out[32 * THREAD] = THREAD; }

extern "C" __global__ void store_half(float4 *out) { out[2 * THREAD] = make_float4(1, 2, 3, THREAD); }

// The columns of a matrix: the next block completes the sector, or one of a later row of blocks.
extern "C" __global__ void store_columns(float *out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x, col = blockIdx.y * blockDim.y + threadIdx.y;
    out[row * cols + col] = row + col;
}

extern "C" __global__ void store_permuted(const int *index, float *out) {
    int i = THREAD;
    out[index[i]] = i;
}

extern "C" __global__ void update_fields3(float *points) {
    int i = THREAD;
#pragma unroll
    for (int k = 0; k < 3; k++)
        points[3 * i + k] += 1.5f;
}

// --------------------------------------------------------------------------------------------------------- units of an
// SM

extern "C" __global__ void shared_rows(float *out, int zero) {
    __shared__ float4 tile[512];
    tile[threadIdx.x] = tile[threadIdx.x + 256] = make_float4(threadIdx.x, 1, 2, zero);
    __syncthreads();
    float4 sum = make_float4(0, 0, 0, 0);
    int at = threadIdx.x;
#pragma unroll 16
    for (int k = 0; k < STEPS; k++) {
        float4 v = tile[(at + k * 8 + zero) & 511];
        sum.x += v.x;
        sum.w += v.w + v.y + v.z;
    }
    out[THREAD] = sum.x + sum.w;
}

extern "C" __global__ void shuffled(float *out) {
    float x = threadIdx.x, y = x + 1;
#pragma unroll 16
    for (int k = 0; k < STEPS; k++) {
        x = __shfl_xor_sync(0xffffffff, x, 1 + (k & 15));
        y = __shfl_xor_sync(0xffffffff, y, 1 + (k & 7));
    }
    out[THREAD] = x + y;
}

extern "C" __global__ void multiply_add(float *out, float a, float b) {
    float x[8];
    for (int j = 0; j < 8; j++)
        x[j] = threadIdx.x + j;
#pragma unroll 8
    for (int k = 0; k < STEPS; k++)
        for (int j = 0; j < 8; j++)
            x[j] = x[j] * a + b;
    out[THREAD] = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

extern "C" __global__ void multiply_add_double(double *out, double a, double b) {
    double x[8];
    for (int j = 0; j < 8; j++)
        x[j] = threadIdx.x + j;
#pragma unroll 8
    for (int k = 0; k < STEPS; k++)
        for (int j = 0; j < 8; j++)
            x[j] = x[j] * a + b;
    out[THREAD] = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

extern "C" __global__ void generators(unsigned *out, unsigned a, unsigned c) {
    unsigned x[8];
    for (int j = 0; j < 8; j++)
        x[j] = threadIdx.x + j;
#pragma unroll 8
    for (int k = 0; k < STEPS; k++)
        for (int j = 0; j < 8; j++)
            x[j] = x[j] * a + c;
    out[THREAD] = x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ x[7];
}

extern "C" __global__ void logic(unsigned *out, unsigned a, unsigned b) {
    unsigned x[8];
    for (int j = 0; j < 8; j++)
        x[j] = threadIdx.x + j;
#pragma unroll 8
    for (int k = 0; k < STEPS; k++)
        for (int j = 0; j < 8; j++)
            x[j] = (x[j] << 5 | x[j] >> 27) ^ (a & x[(j + 1) & 7]);
    out[THREAD] = x[0] ^ x[1] ^ x[2] ^ x[3] ^ x[4] ^ x[5] ^ x[6] ^ (x[7] + b);
}

extern "C" __global__ void special(float *out) {
    float x[8];
    for (int j = 0; j < 8; j++)
        x[j] = threadIdx.x * 0.01f + j * 0.1f;
#pragma unroll 8
    for (int k = 0; k < STEPS; k++)
        for (int j = 0; j < 8; j++)
            asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(x[j]));
    out[THREAD] = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

extern "C" __global__ void converted(float *out, float a) {
    float x[8];
    for (int j = 0; j < 8; j++)
        x[j] = threadIdx.x + j * a;
#pragma unroll 8
    for (int k = 0; k < STEPS; k++)
        for (int j = 0; j < 8; j++)
            x[j] = __int2float_rn(__float2int_rz(x[j]) + 3);
    out[THREAD] = x[0] + x[1] + x[2] + x[3] + x[4] + x[5] + x[6] + x[7];
}

__constant__ float table[1024];

extern "C" __global__ void constants_by_lane(float *out, int zero) {
    float sum = 0;
    int at = threadIdx.x & 7;
#pragma unroll 16
    for (int k = 0; k < STEPS; k++)
        sum += table[at + (k & 15) + zero];
    out[THREAD] = sum;
}

extern "C" __global__ void many_blocks(float *out) {
    if (blockIdx.x == 0)
        out[threadIdx.x] = 1;
}

// ------------------------------------------------------------------------------------------------ local memory, chains

extern "C" __global__ void stack_machine(const int *code, int *out, int steps) {
    int stack[32];
    int top = 0, i = THREAD;
    for (int k = 0; k < 32; k++)
        stack[k] = i + k;
    for (int k = 0; k < steps; k++) {
        int op = code[k];
        top = (top + op) & 31;
        stack[top] = stack[(top + 31) & 31] + stack[(top + op + 3) & 31];
    }
    out[i] = stack[top];
}

extern "C" __global__ void sorted_lanes(const int *in, int *out) {
    int mine[24], i = THREAD;
    for (int k = 0; k < 24; k++)
        mine[k] = in[i + k * 65536];
    int least = 0;
    for (int k = 0; k < 24; k++) {
        int at = (unsigned)mine[k] % 24;
        int t = mine[at];
        mine[at] = mine[k] + 1;
        mine[k] = t;
        least += mine[(at + k) % 24];
    }
    out[i] = least + mine[least & 15];
}

extern "C" __global__ void list_walk(const int *next, int *out, int hops) {
    int at = (int)(mixed(THREAD) & 0x3fffff);
    for (int h = 0; h < hops; h++)
        at = next[at];
    out[THREAD] = at;
}

extern "C" __global__ void list_walk_near(const int *next, int *out, int hops) {
    int at = (int)(mixed(THREAD) & 0xffff);
    for (int h = 0; h < hops; h++)
        at = next[at];
    out[THREAD] = at;
}

extern "C" __global__ void tree_search(const int *keys, const int *wanted, int *out, int n) {
    int key = wanted[THREAD], low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (keys[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    out[THREAD] = low;
}

// ------------------------------------------------------------------------------------------------------------- atomics

template <typename T> __device__ __forceinline__ void histogram(const unsigned char *in, T *bins, int n) {
    __shared__ T mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i]], (T)1);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

extern "C" __global__ void bins_shared(const unsigned char *in, unsigned *bins, int n) { histogram(in, bins, n); }

extern "C" __global__ void weights_shared(const unsigned char *in, float *bins, int n) { histogram(in, bins, n); }

// The same with a block for each 256 numbers: what the blocks add to the bins counts.
extern "C" __global__ void bins_by_block(const unsigned char *in, unsigned *bins) {
    __shared__ unsigned mine[256];
    mine[threadIdx.x] = 0;
    __syncthreads();
    atomicAdd(&mine[in[THREAD]], 1u);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], mine[threadIdx.x]);
}

extern "C" __global__ void bins_global(const unsigned char *in, unsigned *bins, int n) {
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1u);
}

extern "C" __global__ void bins_conflicting(const unsigned char *in, unsigned *out, int n) {
    __shared__ unsigned mine[1024];
    for (int k = threadIdx.x; k < 1024; k += blockDim.x)
        mine[k] = 0;
    __syncthreads();
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[(in[i] & 31) * 32], 1u + i);
    __syncthreads();
    out[THREAD] = mine[threadIdx.x * 4];
}

extern "C" __global__ void reduce_scattered(const int *index, float *out) {
    int i = THREAD;
    atomicAdd(&out[index[i]], 0.5f);
}

extern "C" __global__ void reduce_rows(float *out, int cols) { atomicAdd(&out[THREAD % cols], 1.0f); }

extern "C" __global__ void swap_scattered(const int *index, unsigned *out) {
    int i = THREAD;
    atomicCAS(&out[index[i]], 0u, (unsigned)i);
}

extern "C" __global__ void multiply_by_swap(const int *index, unsigned *out) {
    unsigned *word = out + index[THREAD];
    unsigned old = *word, seen;
    do {
        seen = old;
        old = atomicCAS(word, seen, seen * 3 + 1);
    } while (old != seen);
}

extern "C" __global__ void take_numbers(unsigned *counter, unsigned *out) {
    unsigned mine = 0;
    if (threadIdx.x % 32 == 0)
        mine = atomicAdd(counter, 1u);
    out[THREAD] = mine;
}

extern "C" __global__ void largest_shared(const int *in, int *out, int n) {
    __shared__ int most;
    most = 0;
    __syncthreads();
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        atomicMax(&most, in[i] ^ i);
    __syncthreads();
    out[THREAD] = most;
}

extern "C" __global__ void sum_doubles(const double *in, double *out, int n) {
    double sum = 0;
    for (int i = THREAD; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    atomicAdd(out + (threadIdx.x & 7), sum);
}

// Chains of dependent results, one block of one warp where nothing else is said: each is held by its latency alone.
__global__ void chain_shuffle(const int *in, int *out, int n)
{
    int x = in[threadIdx.x];
    for (int k = 0; k < n; k++)
        x = __shfl_xor_sync(~0u, x, 1) + k;
    out[threadIdx.x] = x;
}
__global__ void chain_special(const float *in, float *out, int n)
{
    float x = in[threadIdx.x];
    for (int k = 0; k < n; k++)
        x = __log2f(x + 2);
    out[threadIdx.x] = x;
}
__global__ void chain_shared(const int *in, int *out, int n)
{
    __shared__ int next[256];
    for (int k = threadIdx.x; k < 256; k += 32)
        next[k] = in[k];
    __syncwarp();
    int at = threadIdx.x;
    for (int k = 0; k < n; k++)
        at = next[at];
    out[threadIdx.x] = at;
}
__global__ void chain_division(const float *in, float *out, int n)
{
    float x = in[threadIdx.x];
    for (int k = 0; k < n; k++)
        x = (x + 3) / (x + 2);
    out[threadIdx.x] = x;
}
// Lanes leave the loop one after the other.
__global__ void chain_diverging(const int *in, int *out, int n)
{
    int x = in[threadIdx.x];
    for (int k = 0; k < n * (threadIdx.x + 1); k++)
        x = x * 3 + (x >> 3);
    out[threadIdx.x] = x;
}
// One lane of each pair takes another way in each iteration.
__global__ void chain_branches(const int *in, int *out, int n)
{
    int x = in[threadIdx.x];
    for (int k = 0; k < n; k++)
        if ((x ^ k) & 1)
            x = __popc(x) * 5 + k;
        else
            x = x * x + 7 * k;
    out[threadIdx.x] = x;
}
// Each hop goes to another line, which nobody has loaded.
__global__ void chain_far(const int *next, int *out, int n)
{
    int at = threadIdx.x;
    for (int k = 0; k < n; k++)
        at = next[at];
    out[threadIdx.x] = at;
}
// The second warp loads all lines before the first one comes to them.
__global__ void chain_helped(const int *next, int *out, int n)
{
    int at = 0, sum = n;
    if (threadIdx.x >= 32) {
        for (int k = threadIdx.x - 32; k < n; k += 32)
            sum += next[k * 1024];
    } else {
        for (int k = 0; k < 3000; k++)
            sum = __popc(sum) + k;
        for (int k = 0; k < n; k++)
            at = next[at];
    }
    out[threadIdx.x] = at + sum % 3;
}
__global__ void chain_prefetched(const int *next, int *out, int n)
{
    for (int k = threadIdx.x; k < n; k += 32)
        asm volatile("prefetch.global.L1 [%0];" ::"l"(next + k * 1024));
    int at = 0, sum = n;
    for (int k = 0; k < 3000; k++)
        sum = __popc(sum) + k;
    for (int k = 0; k < n; k++)
        at = next[at];
    out[threadIdx.x] = at + sum % 3;
}
__global__ void chain_barriers(const int *in, int *out, int n)
{
    __shared__ int cells[256];
    cells[threadIdx.x] = in[threadIdx.x];
    __syncthreads();
    for (int k = 0; k < n; k++) {
        int other = cells[threadIdx.x ^ 32];
        __syncthreads();
        cells[threadIdx.x] = other + k;
        __syncthreads();
    }
    out[threadIdx.x] = cells[threadIdx.x];
}
__global__ void chain_atomics(int *cells, int *out, int n)
{
    int at = threadIdx.x;
    for (int k = 0; k < n; k++)
        at = atomicAdd(&cells[at], 0);
    out[threadIdx.x] = at;
}
