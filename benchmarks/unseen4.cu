// Kernels that use parts of CUDA C++ which the other unseen files lack: pointers of unknown memory, functions that stay functions,
// recursion, named barriers, printf and assert, clocks, cooperative groups, pipelines of asynchronous copies, 8-bit floats,
// reductions and matches of warps, mathematics of double, 64-bit division, structures of odd sizes, hints to caches. unseen4.toml
// launches them at ragged sizes. No kernel's counts depend on the order of atomics: none has an atomic whose result is used.

#include <cassert>
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_pipeline.h>

namespace cg = cooperative_groups;
#define FULL 0xFFFFFFFFu

// -------------------------------------------------------------------------------------------------------- functions, pointers

__device__ __noinline__ float dot(const float *a, const float *b, int n)
{
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[k] * b[k];
    return sum;
}
__device__ __noinline__ void keep_smallest(float *best, int most, float x)
{
    int k = most - 1;
    if (x >= best[k])
        return;
    for (; k > 0 && best[k - 1] > x; k--)
        best[k] = best[k - 1];
    best[k] = x;
}

// Rows of a matrix times a vector that is in shared memory for even rows and in global memory for odd ones.
__global__ void row_dots(const float *matrix, const float *x, float *y, int rows, int cols)
{
    extern __shared__ float near[];
    for (int k = threadIdx.x; k < cols; k += blockDim.x)
        near[k] = x[k];
    __syncthreads();
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows)
        y[row] = dot(row % 2 ? x : near, matrix + (size_t)row * cols, cols);
}

// The three smallest of each thread's numbers, kept in an array of the thread by a function.
__global__ void smallest_three(const float *in, float *out, int each, int threads)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= threads)
        return;
    float best[3] = {2.0f, 2.0f, 2.0f};
    for (int k = 0; k < each; k++)
        keep_smallest(best, 3, in[k * threads + i]);
    for (int k = 0; k < 3; k++)
        out[k * threads + i] = best[k];
}

__device__ __noinline__ unsigned paths(unsigned down, unsigned right)
{
    return down == 0 || right == 0 ? 1 : paths(down - 1, right) + paths(down, right - 1);
}
// Paths through small grids, by a function that calls itself.
__global__ void lattice_paths(const unsigned char *down, unsigned *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        out[i] = paths(down[i] % 5, 3);
}

struct Pixel { unsigned char r, g, b; };
struct Record { int key; float weight; short flags, kind; double sum; };
// Structures of 24 bytes, of which a part is read and a part is written.
__global__ void update_records(Record *records, const Pixel *colour, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Pixel p = colour[i];
    Record &r = records[i];
    if (r.flags & 1)
        r.sum += r.weight * (p.r + p.g + p.b);
    r.kind = p.r > p.b;
}

// --------------------------------------------------------------------------------------------------------- barriers, messages

// Warps of odd number load, warps of even number add what was loaded: two named barriers for each pair of warps.
__global__ void loaders_and_adders(const float *in, float *out, int rounds, int n)
{
    __shared__ float stage[4][32];
    int pair = threadIdx.x / 64, lane = threadIdx.x % 32, loads = threadIdx.x / 32 % 2;
    float sum = 0;
    for (int round = 0; round < rounds; round++) {
        int i = (round * gridDim.x + blockIdx.x) * (blockDim.x / 2) + pair * 32 + lane;
        if (loads) {
            stage[pair][lane] = i < n ? in[i] : 0;
            asm volatile("bar.arrive %0, 64;" ::"r"(1 + pair) : "memory");
            asm volatile("bar.sync %0, 64;" ::"r"(5 + pair) : "memory");
        } else {
            asm volatile("bar.sync %0, 64;" ::"r"(1 + pair) : "memory");
            sum += stage[pair][lane] * stage[pair][lane ^ 1];
            asm volatile("bar.arrive %0, 64;" ::"r"(5 + pair) : "memory");
        }
    }
    if (!loads)
        out[blockIdx.x * (blockDim.x / 2) + pair * 32 + lane] = sum;
}

// A checked copy: asserts that all numbers are finite, and prints the few that are large.
__global__ void checked_scale(const float *in, float *out, float limit, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float x = in[i];
    assert(isfinite(x));
    if (x > limit)
        printf("in[%d] = %f\n", i, x);
    out[i] = 2 * x;
}

// How long each warp's loop takes, beside its result.
__global__ void timed_hash(const unsigned *in, unsigned *out, long long *clocks, int rounds, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned h = i < n ? in[i] : 0;
    long long begin = clock64();
    for (int k = 0; k < rounds; k++)
        h = (h ^ h >> 13) * 0x5bd1e995u;
    long long end = clock64();
    if (i < n)
        out[i] = h;
    if (threadIdx.x % 32 == 0)
        clocks[i / 32] = end - begin;
}

// Blocks count how many of their numbers are odd, and whether any and whether all are.
__global__ void block_votes(const int *in, int4 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, x = i < n ? in[i] : 1;
    int odd = __syncthreads_count(x & 1), any = __syncthreads_or(x % 7 == 0), all = __syncthreads_and(x > 3);
    if (threadIdx.x == 0)
        out[blockIdx.x] = make_int4(odd, any, all, i);
}

// ------------------------------------------------------------------------------------------------------------------ warps

// Sums of tiles of eight threads, by cooperative groups.
__global__ void tile_sums(const int *in, int *out, int n)
{
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int sum = cg::reduce(tile, i < n ? in[i] : 0, cg::plus<int>());
    int most = cg::reduce(tile, i < n ? in[i] : 0, cg::greater<int>());
    if (tile.thread_rank() == 0 && i < n)
        out[i / 8] = sum * 1000 + most;
}

// In a branch that only some lanes take, they number themselves.
__global__ void rank_in_branch(const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    out[i] = -1;
    if (in[i] % 3 == 0) {
        auto here = cg::coalesced_threads();
        out[i] = here.thread_rank() + 100 * here.size() + 10000 * here.shfl(in[i], 0);
    }
}

// How many lanes have the same key, and the sum of their numbers.
__global__ void sums_by_key(const unsigned char *key, const int *in, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool inside = i < n;
    unsigned same = __match_any_sync(FULL, inside ? key[i] % 5 : 99);
    int sum = __reduce_add_sync(same, inside ? in[i] : 0);
    unsigned most = __reduce_max_sync(FULL, inside ? (unsigned)in[i] : 0);
    if (inside)
        out[i] = sum + __popc(same) + most;
}

// A smoothing of rows of sixteen by neighbours' registers.
__global__ void smooth_sixteen(const float *in, float *out, int rows)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, row = i / 16;
    float x = row < rows ? in[i] : 0, left = __shfl_up_sync(FULL, x, 1, 16), right = __shfl_down_sync(FULL, x, 1, 16);
    if (row < rows)
        out[i] = 0.25f * left + 0.5f * x + 0.25f * right;
}

// ------------------------------------------------------------------------------------------------------- copies, small floats

// Sums of rows whose next piece is copied while the last one is added.
__global__ void staged_sums(const float4 *in, float *out, int pieces)
{
    __shared__ float4 stage[2][128];
    const float4 *row = in + (size_t)blockIdx.x * pieces * blockDim.x;
    __pipeline_memcpy_async(&stage[0][threadIdx.x], row + threadIdx.x, sizeof(float4));
    __pipeline_commit();
    float sum = 0;
    for (int k = 0; k < pieces; k++) {
        if (k + 1 < pieces)
            __pipeline_memcpy_async(&stage[(k + 1) % 2][threadIdx.x], row + (k + 1) * blockDim.x + threadIdx.x, sizeof(float4));
        __pipeline_commit();
        __pipeline_wait_prior(1);
        float4 v = stage[k % 2][threadIdx.x];
        sum += v.x + v.y + v.z + v.w;
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Floats to 8-bit floats and back, scaled by the largest of a warp.
__global__ void through_fp8(const float *in, float *out, unsigned char *packed, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = i < n ? in[i] : 0, most = fabsf(x);
    for (int lane = 16; lane; lane /= 2)
        most = fmaxf(most, __shfl_xor_sync(FULL, most, lane));
    float scale = most > 0 ? 448.0f / most : 1.0f;
    __nv_fp8_e4m3 small(x * scale);
    if (i < n) {
        packed[i] = small.__x;
        out[i] = float(small) / scale;
    }
}

// Dot products of rows of halves, two at a time, by one warp each.
__global__ void half_dots(const __half2 *a, const __half2 *b, __half *out, int rows, int pairs)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    __half2 sum = __float2half2_rn(0);
    for (int k = lane; k < pairs; k += 32)
        sum = __hfma2(a[row * pairs + k], b[row * pairs + k], sum);
    for (int step = 16; step; step /= 2)
        sum = __hadd2(sum, __shfl_xor_sync(FULL, sum, step));
    if (lane == 0)
        out[row] = __hadd(__low2half(sum), __high2half(sum));
}

// --------------------------------------------------------------------------------------------------------- numbers, places

// Great-circle distances in double.
__global__ void haversine(const double2 *a, const double2 *b, double *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double2 p = a[i], q = b[i];
    double u = sin((q.x - p.x) / 2), v = sin((q.y - p.y) / 2);
    out[i] = 2 * 6371.0 * asin(sqrt(u * u + cos(p.x) * cos(q.x) * v * v));
}

// Greatest common divisors of 64-bit numbers.
__global__ void gcd64(const unsigned long long *a, const unsigned long long *b, unsigned long long *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long x = a[i] + 1, y = b[i] + 1;
    while (y) {
        unsigned long long rest = x % y;
        x = y;
        y = rest;
    }
    out[i] = x;
}

// Codes of Morton, and back, with functions on bits and bytes.
__global__ void morton(const ushort2 *in, unsigned *code, unsigned *mixed, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    ushort2 p = in[i];
    unsigned x = p.x, y = p.y;
    for (int shift = 8, mask = 0x00FF00FF; shift; shift /= 2, mask ^= mask << shift) {
        x = (x | x << shift) & mask;
        y = (y | y << shift) & mask;
    }
    unsigned c = x | y << 1;
    code[i] = c;
    mixed[i] = __byte_perm(c, __brev(c), 0x2175) ^ __funnelshift_l(c, p.y, p.x & 31) ^ __clz(c) ^ __umulhi(c, 0x9E3779B9u);
}

// Neighbours of a box, by blocks of 5 x 3 x 7 threads.
__global__ void box_neighbours(const short *in, int *out, int nx, int ny, int nz)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz)
        return;
    int sum = 0;
    for (int dz = -1; dz <= 1; dz++)
        for (int dy = -1; dy <= 1; dy++)
            for (int dx = -1; dx <= 1; dx++) {
                int u = x + dx, v = y + dy, w = z + dz;
                if (u >= 0 && u < nx && v >= 0 && v < ny && w >= 0 && w < nz)
                    sum += in[(w * ny + v) * nx + u];
            }
    out[(z * ny + y) * nx + x] = sum;
}

// Loads and stores with hints to the caches, and by a volatile pointer.
__global__ void hinted_copies(const float4 *in, float4 *streamed, volatile int *plain, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float4 a = __ldcs(in + i), b = __ldcg(in + n - 1 - i);
    int before = plain[i];
    __stcs(streamed + i, make_float4(a.x + b.w, a.y + b.z, a.z + b.y, a.w + b.x));
    plain[i] = before + 1;
}

// Largest and sums by group: atomics in shared memory, then in global memory, of 32 and 64 bits.
__global__ void group_totals(const unsigned *in, unsigned *largest, unsigned long long *total, int groups, int n)
{
    __shared__ unsigned most[48];
    __shared__ unsigned long long sums[48];
    for (int k = threadIdx.x; k < groups; k += blockDim.x) {
        most[k] = 0;
        sums[k] = 0;
    }
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        atomicMax(&most[in[i] % groups], in[i]);
        atomicAdd(&sums[in[i] % groups], (unsigned long long)in[i]);
    }
    __syncthreads();
    for (int k = threadIdx.x; k < groups; k += blockDim.x) {
        atomicMax(&largest[k], most[k]);
        atomicAdd(&total[k], sums[k]);
    }
}

// A machine of states that reads a text, with jumps to and fro.
__global__ void number_states(const unsigned char *text, int *values, int each, int threads)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x, value = 0, sum = 0, at = 0;
    if (t >= threads)
        return;
    const unsigned char *mine = text + t * each;
blank:
    if (at == each)
        goto end;
    if (mine[at] % 16 > 9) {
        at++;
        goto blank;
    }
digit:
    value = value * 10 + mine[at++] % 16;
    if (at < each && mine[at] % 16 <= 9)
        goto digit;
    sum += value;
    value = 0;
    if (sum < 100000)
        goto blank;
end:
    values[t] = sum;
}
