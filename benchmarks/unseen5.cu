// Thirty-six kernels of kinds that unseen.cu to unseen4.cu lack, some as students write them and some as experts do.
// unseen5.toml launches them at ragged sizes. Results do not depend on the order of atomics, but for next of frontier_expand,
// the slots of hash_insert and the last digits of float sums.

#include <cooperative_groups.h>
#include <cuda_fp16.h>

namespace cg = cooperative_groups;

#define FULL 0xFFFFFFFFu
#define PADDED(i) ((i) + ((i) >> 5))

typedef unsigned long long u64;

template <typename T> __device__ T warp_sum(T x)
{
#pragma unroll
    for (int d = 16; d > 0; d >>= 1)
        x += __shfl_down_sync(FULL, x, d);
    return x;
}

// --------------------------------------------------------------------------------------------- scans, sorts, reductions

// Blelloch's work-efficient exclusive scan of 2 * blockDim.x numbers, with indices padded against bank conflicts.
extern "C" __global__ void scan_blelloch(const int *data, int *out, int *sums, int n)
{
    extern __shared__ int temp[];
    int tid = threadIdx.x, m = 2 * blockDim.x, first = blockIdx.x * m, offset = 1;
    int lower = tid, upper = tid + m / 2;
    temp[PADDED(lower)] = first + lower < n ? data[first + lower] : 0;
    temp[PADDED(upper)] = first + upper < n ? data[first + upper] : 0;
    for (int d = m >> 1; d > 0; d >>= 1) {
        __syncthreads();
        if (tid < d) {
            int ai = offset * (2 * tid + 1) - 1, bi = offset * (2 * tid + 2) - 1;
            temp[PADDED(bi)] += temp[PADDED(ai)];
        }
        offset *= 2;
    }
    if (tid == 0) {
        sums[blockIdx.x] = temp[PADDED(m - 1)];
        temp[PADDED(m - 1)] = 0;
    }
    for (int d = 1; d < m; d *= 2) {
        offset >>= 1;
        __syncthreads();
        if (tid < d) {
            int ai = offset * (2 * tid + 1) - 1, bi = offset * (2 * tid + 2) - 1;
            int t = temp[PADDED(ai)];
            temp[PADDED(ai)] = temp[PADDED(bi)];
            temp[PADDED(bi)] += t;
        }
    }
    __syncthreads();
    if (first + lower < n)
        out[first + lower] = temp[PADDED(lower)];
    if (first + upper < n)
        out[first + upper] = temp[PADDED(upper)];
}

// Upsweep of a radix sort: how many keys of a block have each 4-bit digit; equal digits of a warp are added once.
extern "C" __global__ void digit_counts(const unsigned *key, unsigned *counts, int shift, int n)
{
    __shared__ unsigned hist[5][17];
    int warp = threadIdx.x >> 5, lane = threadIdx.x & 31;
    if (lane < 17)
        hist[warp][lane] = 0;
    __syncwarp();
    int base = blockIdx.x * blockDim.x * 6 + threadIdx.x;
#pragma unroll
    for (int r = 0; r < 6; r++) {
        int i = base + r * blockDim.x;
        unsigned digit = i < n ? (key[i] >> shift) & 15 : 16;
        unsigned peers = __match_any_sync(FULL, digit);
        if (lane == __ffs(peers) - 1)
            hist[warp][digit] += __popc(peers);
        __syncwarp();
    }
    __syncthreads();
    if (threadIdx.x < 16) {
        unsigned sum = 0;
        for (int w = 0; w < 5; w++)
            sum += hist[w][threadIdx.x];
        counts[threadIdx.x * gridDim.x + blockIdx.x] = sum;
    }
}

// Sum by sorted key: a segmented reduction in each warp, then an atomic by the head of each segment.
extern "C" __global__ void segmented_reduce(const int *key, const int *value, int *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x & 31;
    int mine = -1, sum = 0;
    if (i < n) {
        mine = key[i];
        sum = value[i];
    }
    int before = __shfl_up_sync(FULL, mine, 1);
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_down_sync(FULL, sum, d);
        int other_key = __shfl_down_sync(FULL, mine, d);
        if (lane + d < 32 && other_key == mine)
            sum += other;
    }
    if (i < n && (lane == 0 || before != mine))
        atomicAdd(&out[mine], sum);
}

__device__ __forceinline__ void exchange(unsigned &a, unsigned &b)
{
    if (a > b) {
        unsigned t = a;
        a = b;
        b = t;
    }
}

// Batcher's odd-even merge sort of a row of at most 512 keys in shared memory.
extern "C" __global__ void odd_even_merge(const unsigned *data, unsigned *out, int cols)
{
    __shared__ unsigned s[512];
    const unsigned *row = data + blockIdx.x * cols;
    int tid = threadIdx.x;
    for (int c = tid; c < 512; c += 256)
        s[c] = c < cols ? row[c] : 0xFFFFFFFFu;
    for (int size = 2; size <= 512; size <<= 1) {
        int stride = size / 2, offset = tid & (stride - 1);
        __syncthreads();
        int pos = 2 * tid - (tid & (stride - 1));
        exchange(s[pos], s[pos + stride]);
        for (stride >>= 1; stride > 0; stride >>= 1) {
            __syncthreads();
            pos = 2 * tid - (tid & (stride - 1));
            if (offset >= stride)
                exchange(s[pos - stride], s[pos]);
        }
    }
    __syncthreads();
    for (int c = tid; c < cols; c += 256)
        out[blockIdx.x * cols + c] = s[c];
}

// The k-th largest of each row: radix selection, most significant digit first.
extern "C" __global__ void radix_select(const float *data, float *out, int cols, int k)
{
    __shared__ unsigned hist[256];
    __shared__ unsigned prefix, left;
    const float *row = data + (size_t)blockIdx.x * cols;
    unsigned mask = 0;
    if (threadIdx.x == 0) {
        prefix = 0;
        left = k;
    }
    for (int shift = 24; shift >= 0; shift -= 8) {
        for (int d = threadIdx.x; d < 256; d += blockDim.x)
            hist[d] = 0;
        __syncthreads();
        for (int c = threadIdx.x; c < cols; c += blockDim.x) {
            unsigned u = __float_as_uint(row[c]);
            u ^= (u >> 31) ? 0xFFFFFFFFu : 0x80000000u;
            if ((u & mask) == prefix)
                atomicAdd(&hist[(u >> shift) & 255], 1u);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int d = 255;
            while (hist[d] < left)
                left -= hist[d--];
            prefix |= (unsigned)d << shift;
        }
        __syncthreads();
        mask |= 255u << shift;
    }
    if (threadIdx.x == 0)
        out[blockIdx.x] = __uint_as_float((prefix >> 31) ? prefix ^ 0x80000000u : ~prefix);
}

// First half of run-length encoding: each block keeps the starts and symbols of the runs that begin in its part.
extern "C" __global__ void run_lengths(const unsigned char *symbol, int *run_start, unsigned char *run_symbol, int *counts, int n)
{
    __shared__ int warp_base[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int warps = blockDim.x / 32;
    unsigned char s = i < n ? symbol[i] : 0;
    bool head = i < n && (i == 0 || symbol[i - 1] != s);
    unsigned heads = __ballot_sync(FULL, head);
    if (lane == 0)
        warp_base[warp] = __popc(heads);
    __syncthreads();
    if (warp == 0) {
        int c = lane < warps ? warp_base[lane] : 0, scan = c;
        for (int d = 1; d < 32; d <<= 1) {
            int up = __shfl_up_sync(FULL, scan, d);
            if (lane >= d)
                scan += up;
        }
        warp_base[lane] = scan - c;
        if (lane == 31)
            counts[blockIdx.x] = scan;
    }
    __syncthreads();
    if (head) {
        int at = blockIdx.x * blockDim.x + warp_base[warp] + __popc(heads & ((1u << lane) - 1));
        run_start[at] = i;
        run_symbol[at] = s;
    }
}

struct Triple {
    float x, y, z;
};

// Gather of records into separate fields, and the inverse of the permutation by a scatter.
extern "C" __global__ void permute_fields(const Triple *records, const int *order, float *fields, int *inverse, int n)
{
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n)
        return;
    int from = order[i];
    Triple t = records[from];
    fields[i] = t.x;
    fields[n + i] = t.y;
    fields[2 * n + i] = t.z;
    inverse[from] = i;
}

__device__ unsigned blocks_arrived;

// A sum in one launch: the block that arrives last adds the partial sums.
extern "C" __global__ void sum_last_block(const float4 *data, volatile float *partial, float *total, int quads)
{
    __shared__ float warps[32];
    __shared__ bool last;
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < quads; i += gridDim.x * blockDim.x) {
        float4 v = data[i];
        sum += (v.x + v.y) + (v.z + v.w);
    }
    for (int phase = 0; phase < 2; phase++) {
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0)
            warps[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x < 32) {
            sum = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0;
            sum = warp_sum(sum);
        }
        if (phase == 1) {
            if (threadIdx.x == 0)
                *total = sum;
            return;
        }
        if (threadIdx.x == 0) {
            partial[blockIdx.x] = sum;
            __threadfence();
            last = atomicInc(&blocks_arrived, gridDim.x - 1) == gridDim.x - 1;
        }
        __syncthreads();
        if (!last)
            return;
        sum = 0;
        for (int b = threadIdx.x; b < gridDim.x; b += blockDim.x)
            sum += partial[b];
    }
}

// Compensated sums in double precision; pairs (sum, error) are joined by Knuth's two-sum.
extern "C" __global__ void kahan_sum(const double *data, double *out, int n)
{
    double sum = 0, c = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        double y = data[i] - c;
        double t = sum + y;
        c = (t - sum) - y;
        sum = t;
    }
    c = -c;
    for (int d = 16; d > 0; d /= 2) {
        double s2 = __shfl_xor_sync(FULL, sum, d), c2 = __shfl_xor_sync(FULL, c, d);
        double t = sum + s2, z = t - sum;
        double e = (sum - (t - z)) + (s2 - z);
        sum = t;
        c = c + c2 + e;
    }
    __shared__ double2 part[4];
    if ((threadIdx.x & 31) == 0)
        part[threadIdx.x >> 5] = make_double2(sum, c);
    __syncthreads();
    if (threadIdx.x == 0) {
        double total = 0, error = 0;
        for (int w = 0; w < 4; w++) {
            total += part[w].x;
            error += part[w].y;
        }
        out[blockIdx.x] = total + error;
    }
}

// -------------------------------------------------------------------------------------------- sparse matrices and graphs

// Block-sparse rows with 3 by 3 blocks: eight lanes for each row of blocks.
extern "C" __global__ void spmv_bsr(const int *start, const int *col, const float *value, const float *x, float *y, int rows)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x, row = t / 8, lane = t % 8;
    float y0 = 0, y1 = 0, y2 = 0;
    if (row < rows) {
        int end = start[row + 1];
        for (int b = start[row] + lane; b < end; b += 8) {
            const float *a = value + 9 * b, *v = x + 3 * col[b];
            float v0 = __ldg(v), v1 = __ldg(v + 1), v2 = __ldg(v + 2);
            y0 += a[0] * v0 + a[1] * v1 + a[2] * v2;
            y1 += a[3] * v0 + a[4] * v1 + a[5] * v2;
            y2 += a[6] * v0 + a[7] * v1 + a[8] * v2;
        }
    }
    for (int d = 4; d; d >>= 1) {
        y0 += __shfl_xor_sync(FULL, y0, d, 8);
        y1 += __shfl_xor_sync(FULL, y1, d, 8);
        y2 += __shfl_xor_sync(FULL, y2, d, 8);
    }
    if (row < rows && lane < 3)
        y[3 * row + lane] = lane == 0 ? y0 : lane == 1 ? y1 : y2;
}

#define QUEUE 256

// Top-down step of a breadth-first search: new vertices go to a queue in shared memory, and past its end straight to next.
extern "C" __global__ void frontier_expand(const int *start, const int *to, const int *frontier, int *level, int *next, int *count,
                                           int depth, int size)
{
    __shared__ int queue[QUEUE];
    __shared__ int queued, base;
    if (threadIdx.x == 0)
        queued = 0;
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) {
        int v = frontier[i];
        for (int e = start[v]; e < start[v + 1]; e++) {
            int u = to[e];
            if (level[u] == -1 && atomicCAS(&level[u], -1, depth) == -1) {
                int at = atomicAdd(&queued, 1);
                if (at < QUEUE)
                    queue[at] = u;
                else
                    next[atomicAdd(count, 1)] = u;
            }
        }
    }
    __syncthreads();
    int kept = min(queued, QUEUE);
    if (threadIdx.x == 0)
        base = atomicAdd(count, kept);
    __syncthreads();
    for (int q = threadIdx.x; q < kept; q += blockDim.x)
        next[base + q] = queue[q];
}

#define LW 18
#define LH 10

// Connected components, local phase: within a tile each pixel gets the least label of its component.
extern "C" __global__ void label_step(const unsigned char *image, const int *label_in, int *label_out, int width, int height)
{
    __shared__ int label[LH + 2][LW + 2];
    __shared__ short colour[LH + 2][LW + 2];
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    int x = blockIdx.x * LW + threadIdx.x, y = blockIdx.y * LH + threadIdx.y;
    for (int t = threadIdx.y * LW + threadIdx.x; t < (LH + 2) * (LW + 2); t += LW * LH)
        colour[t / (LW + 2)][t % (LW + 2)] = -1;
    __syncthreads();
    bool inside = x < width && y < height;
    int mine = 0;
    if (inside) {
        colour[ty][tx] = image[y * width + x];
        mine = label_in[y * width + x];
        label[ty][tx] = mine;
    }
    int changed;
    do {
        __syncthreads();
        int least = mine;
        if (inside) {
            short c = colour[ty][tx];
            if (colour[ty][tx - 1] == c)
                least = min(least, label[ty][tx - 1]);
            if (colour[ty][tx + 1] == c)
                least = min(least, label[ty][tx + 1]);
            if (colour[ty - 1][tx] == c)
                least = min(least, label[ty - 1][tx]);
            if (colour[ty + 1][tx] == c)
                least = min(least, label[ty + 1][tx]);
        }
        changed = __syncthreads_or(least < mine);
        if (least < mine)
            label[ty][tx] = mine = least;
    } while (changed);
    if (inside)
        label_out[y * width + x] = mine;
}

// List ranking, first phase: walk from each splitter to the next one, adding weights.
extern "C" __global__ void split_walk(const int *next, const int *weight, int *stop, int *length, int *sum, int every, int n)
{
    int s = blockIdx.x * blockDim.x + threadIdx.x;
    int at = s * every;
    if (at < n) {
        int steps = 0, total = 0;
        do {
            total += weight[at];
            at = next[at];
            steps++;
        } while (at % every != 0);
        stop[s] = at / every;
        length[s] = steps;
        sum[s] = total;
    }
}

__device__ unsigned murmur(unsigned h)
{
    h ^= h >> 16;
    h *= 0x85ebca6bu;
    h ^= h >> 13;
    h *= 0xc2b2ae35u;
    return h ^ (h >> 16);
}

// Counting hash table with open addressing: (key + 1) and a count in a 64-bit word, taken with a compare-and-swap.
extern "C" __global__ void hash_insert(const unsigned *key, u64 *table, unsigned mask, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        unsigned k = key[i];
        u64 tag = (u64)(k + 1) << 32;
        unsigned slot = murmur(k) & mask;
        while (true) {
            u64 seen = *(volatile u64 *)&table[slot];
            if (seen == 0) {
                seen = atomicCAS(&table[slot], 0ULL, tag | 1);
                if (seen == 0)
                    break;
            }
            if ((seen >> 32) == k + 1) {
                atomicAdd(&table[slot], 1ULL);
                break;
            }
            slot = (slot + 1) & mask;
        }
    }
}

// One level of a sparse lower triangular solve: the rows of a level need only x of earlier levels.
extern "C" __global__ void sptrsv_level(const int *order, const int *start, const int *col, const double *value, const double *diagonal,
                                        const double *b, double *x, int first, int count)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count)
        return;
    int row = order[first + i];
    double rest = b[row];
    for (int e = start[row]; e < start[row + 1]; ++e)
        rest -= value[e] * x[col[e]];
    x[row] = rest / diagonal[row];
}

// ------------------------------------------------------------------------------------------------------ dense matrices

// Step k of an LU factorisation without pivoting; multipliers go to their own array.
extern "C" __global__ void lu_column(double *matrix, double *multiplier, int k, int n)
{
    __shared__ double m[6];
    int col = k + 1 + blockIdx.x * blockDim.x + threadIdx.x, row = k + 1 + blockIdx.y * blockDim.y + threadIdx.y;
    if (threadIdx.x == 0 && row < n) {
        double factor = matrix[row * n + k] / matrix[k * n + k];
        m[threadIdx.y] = factor;
        if (blockIdx.x == 0)
            multiplier[row] = factor;
    }
    __syncthreads();
    if (row < n && col < n)
        matrix[row * n + col] -= m[threadIdx.y] * matrix[k * n + col];
}

#define CN 6

// Cholesky factors of many 6 by 6 matrices, one a thread.
extern "C" __global__ void cholesky_batch(const float *a, float *factor, int *failed, int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n)
        return;
    float l[CN][CN];
    int bad = 0;
    for (int i = 0; i < CN; i++)
        for (int j = 0; j < CN; j++)
            l[i][j] = j <= i ? a[t * CN * CN + i * CN + j] : 0.0f;
    for (int j = 0; j < CN; j++) {
        float d = l[j][j];
        for (int k = 0; k < j; k++)
            d -= l[j][k] * l[j][k];
        if (d <= 0) {
            bad = j + 1;
            break;
        }
        d = sqrtf(d);
        l[j][j] = d;
        for (int i = j + 1; i < CN; i++) {
            float s = l[i][j];
            for (int k = 0; k < j; k++)
                s -= l[i][k] * l[j][k];
            l[i][j] = s / d;
        }
    }
    for (int i = 0; i < CN; i++)
        for (int j = 0; j < CN; j++)
            factor[t * CN * CN + i * CN + j] = l[i][j];
    failed[t] = bad;
}

// Parallel cyclic reduction: a block solves one tridiagonal system, a thread each equation.
extern "C" __global__ void pcr_tridiagonal(const float *a, const float *b, const float *c, const float *d, float *x, int size)
{
    extern __shared__ float pcr[];
    float *sa = pcr, *sb = pcr + size, *sc = pcr + 2 * size, *sd = pcr + 3 * size;
    int i = threadIdx.x, at = blockIdx.x * size + i;
    float ra = a[at], rb = b[at], rc = c[at], rd = d[at];
    for (int step = 1; step < size; step *= 2) {
        sa[i] = ra;
        sb[i] = rb;
        sc[i] = rc;
        sd[i] = rd;
        __syncthreads();
        float na = 0, nc = 0;
        if (i >= step) {
            float k = ra / sb[i - step];
            rb -= k * sc[i - step];
            rd -= k * sd[i - step];
            na = -k * sa[i - step];
        }
        if (i + step < size) {
            float k = rc / sb[i + step];
            rb -= k * sa[i + step];
            rd -= k * sd[i + step];
            nc = -k * sc[i + step];
        }
        ra = na;
        rc = nc;
        __syncthreads();
    }
    x[at] = rd / rb;
}

// Transposes each plane of doubles through a tile with an odd pitch.
extern "C" __global__ void transpose_padded(const double *source, double *target, int rows, int cols)
{
    __shared__ double tile[16][17];
    size_t plane = (size_t)blockIdx.z * rows * cols;
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16;
    for (int j = threadIdx.y; j < 16; j += 4)
        if (x < cols && y + j < rows)
            tile[j][threadIdx.x] = source[plane + (size_t)(y + j) * cols + x];
    __syncthreads();
    int tx = blockIdx.y * 16 + threadIdx.x, ty = blockIdx.x * 16;
    for (int j = threadIdx.y; j < 16; j += 4)
        if (tx < rows && ty + j < cols)
            target[plane + (size_t)(ty + j) * rows + tx] = tile[threadIdx.x][j];
}

// ------------------------------------------------------------------------------------------------------------- physics

__constant__ float wave_weight[5] = {-2.847222f, 1.6f, -0.2f, 0.02539683f, -0.001785714f};

// Wave equation, eighth order in space: a queue of nine planes in registers, the plane's halo in shared memory.
extern "C" __global__ void wave25(const float *now, const float *before, float *after, float k, int nx, int ny, int nz)
{
    __shared__ float tile[16][40];
    int x = blockIdx.x * 32 + threadIdx.x + 4, y = blockIdx.y * 8 + threadIdx.y + 4, plane = nx * ny;
    int at = min(y, ny - 5) * nx + min(x, nx - 5);
    float queue[9];
#pragma unroll
    for (int i = 0; i < 8; i++)
        queue[i + 1] = now[at + i * plane];
    for (int z = 4; z < nz - 4; z++) {
#pragma unroll
        for (int i = 0; i < 8; i++)
            queue[i] = queue[i + 1];
        queue[8] = now[at + (z + 4) * plane];
        __syncthreads();
        for (int ty = threadIdx.y; ty < 16; ty += 8)
            for (int tx = threadIdx.x; tx < 40; tx += 32) {
                int gx = blockIdx.x * 32 + tx, gy = blockIdx.y * 8 + ty;
                tile[ty][tx] = gx < nx && gy < ny ? now[z * plane + gy * nx + gx] : 0.0f;
            }
        __syncthreads();
        float sum = 3 * wave_weight[0] * queue[4];
        int sx = threadIdx.x + 4, sy = threadIdx.y + 4;
#pragma unroll
        for (int r = 1; r <= 4; r++)
            sum += wave_weight[r] * (queue[4 - r] + queue[4 + r] + tile[sy][sx - r] + tile[sy][sx + r] + tile[sy - r][sx] + tile[sy + r][sx]);
        if (x < nx - 4 && y < ny - 4)
            after[z * plane + at] = 2 * queue[4] - before[z * plane + at] + k * sum;
    }
}

// Metropolis sweep of an Ising lattice over the cells of one colour of a checkerboard; a xorshift state for each cell.
extern "C" __global__ void ising_half(signed char *spin, unsigned *state, float beta, int colour, int tries, int width, int height)
{
    int half = width / 2, t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= half * height)
        return;
    int y = t / half, x = 2 * (t % half) + ((y + colour) & 1);
    int left = x == 0 ? width - 1 : x - 1, right = x == width - 1 ? 0 : x + 1;
    int up = y == 0 ? height - 1 : y - 1, down = y == height - 1 ? 0 : y + 1;
    int field = spin[y * width + left] + spin[y * width + right] + spin[up * width + x] + spin[down * width + x];
    int s = spin[y * width + x];
    unsigned r = state[t];
    for (int i = 0; i < tries; i++) {
        int gain = 2 * s * field;
        if (gain <= 0) {
            s = -s;
            continue;
        }
        r ^= r << 13;
        r ^= r >> 17;
        r ^= r << 5;
        if ((r >> 8) * (1.0f / 16777216.0f) < __expf(-beta * gain))
            s = -s;
    }
    spin[y * width + x] = s;
    state[t] = r;
}

__constant__ float4 balls[6] = {{0, 0, 5, 1}, {1.5f, 0.4f, 4, 0.6f}, {-1.4f, -0.2f, 4.5f, 0.8f}, {0.3f, 1.2f, 3.5f, 0.4f}, {0, -101, 5, 100}, {-0.5f, 0.7f, 6, 0.9f}};

// Mirrors: a ray to each pixel is reflected by spheres until it meets the sky.
extern "C" __global__ void spheres_bounce(uchar4 *out, int most, int width, int height)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height)
        return;
    float3 o = make_float3(0, 0, 0), d = make_float3((px - 0.5f * width) / height, (0.5f * height - py) / height, 1);
    float inv = rsqrtf(d.x * d.x + d.y * d.y + d.z * d.z), light = 1;
    d.x *= inv, d.y *= inv, d.z *= inv;
    int bounce = 0;
    for (; bounce < most; bounce++) {
        float nearest = 1e30f;
        int hit = -1;
        for (int i = 0; i < 6; i++) {
            float4 s = balls[i];
            float ox = o.x - s.x, oy = o.y - s.y, oz = o.z - s.z;
            float b = ox * d.x + oy * d.y + oz * d.z, c = ox * ox + oy * oy + oz * oz - s.w * s.w, q = b * b - c;
            if (q < 0)
                continue;
            float t = -b - sqrtf(q);
            if (t > 1e-3f && t < nearest) {
                nearest = t;
                hit = i;
            }
        }
        if (hit < 0)
            break;
        o.x += nearest * d.x, o.y += nearest * d.y, o.z += nearest * d.z;
        float4 s = balls[hit];
        float nx = (o.x - s.x) / s.w, ny = (o.y - s.y) / s.w, nz = (o.z - s.z) / s.w;
        float turn = 2 * (d.x * nx + d.y * ny + d.z * nz);
        d.x -= turn * nx, d.y -= turn * ny, d.z -= turn * nz;
        light *= 0.55f + 0.05f * hit;
    }
    float sky = 0.5f + 0.5f * d.y;
    out[py * width + px] = make_uchar4(255 * light * __saturatef(sky), 200 * light, 255 * light, bounce);
}

// ---------------------------------------------------------------------------------------------------- machine learning

#define PAGE 16

// Attention of one new token over a paged cache: a block for each head of a sequence, its warps share the tokens.
extern "C" __global__ void paged_decode(const float2 *q, const __half2 *keys, const __half2 *values, const int *table, const int *length,
                                        float2 *out, int heads, int pages)
{
    __shared__ float2 part[4][32];
    __shared__ float most[4], weight[4];
    int head = blockIdx.x, sequence = blockIdx.y, lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    float2 mine = q[(sequence * heads + head) * 32 + lane];
    float2 acc = make_float2(0, 0);
    float m = -1e30f, l = 0;
    int tokens = length[sequence];
    for (int t = warp; t < tokens; t += 4) {
        size_t at = (((size_t)table[sequence * pages + t / PAGE] * PAGE + t % PAGE) * heads + head) * 32 + lane;
        float2 k = __half22float2(keys[at]);
        float score = mine.x * k.x + mine.y * k.y;
        for (int o = 16; o; o >>= 1)
            score += __shfl_xor_sync(FULL, score, o);
        score *= 0.125f;
        float2 v = __half22float2(values[at]);
        float larger = fmaxf(m, score), fade = __expf(m - larger), p = __expf(score - larger);
        acc.x = acc.x * fade + p * v.x;
        acc.y = acc.y * fade + p * v.y;
        l = l * fade + p;
        m = larger;
    }
    part[warp][lane] = acc;
    if (lane == 0) {
        most[warp] = m;
        weight[warp] = l;
    }
    __syncthreads();
    if (warp == 0) {
        float top = fmaxf(fmaxf(most[0], most[1]), fmaxf(most[2], most[3])), sum = 0;
        acc = make_float2(0, 0);
        for (int w = 0; w < 4; w++) {
            float f = __expf(most[w] - top);
            acc.x += f * part[w][lane].x;
            acc.y += f * part[w][lane].y;
            sum += f * weight[w];
        }
        out[(sequence * heads + head) * 32 + lane] = make_float2(acc.x / sum, acc.y / sum);
    }
}

// Gated activation of a feed-forward layer, two half numbers at a time.
extern "C" __global__ void half2_swiglu(const __half2 *gate, const __half2 *up, __half2 *out, int pairs)
{
    const __half2 one = __float2half2_rn(1.0f), high = __float2half2_rn(8.0f), low = __hneg2(high);
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += stride) {
        __half2 g = __hmax2(__hmin2(gate[i], high), low);
        __half2 sigmoid = h2rcp(__hadd2(one, h2exp(__hneg2(g))));
        out[i] = __hmul2(__hmul2(g, sigmoid), up[i]);
    }
}

// Matching of descriptors of 32 signed bytes: squared distances to the nearest and the second nearest, sixteen lanes a query.
extern "C" __global__ void dp4a_match(const char4 *query, const char4 *train, int *best, int *second, int nq, int nt)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x, lane = t & 15, row = min(t >> 4, nq - 1);
    const int *a = (const int *)query + row * 8, *b = (const int *)train;
    int mine[8], norm = 0;
#pragma unroll
    for (int w = 0; w < 8; w++) {
        mine[w] = a[w];
        norm = __dp4a(mine[w], mine[w], norm);
    }
    int first = 0x7FFFFFFF, next = 0x7FFFFFFF;
    for (int j = lane; j < nt; j += 16) {
        int dot = 0, other = 0;
#pragma unroll
        for (int w = 0; w < 8; w++) {
            int v = b[j * 8 + w];
            dot = __dp4a(mine[w], v, dot);
            other = __dp4a(v, v, other);
        }
        int distance = norm + other - 2 * dot;
        next = min(next, max(first, distance));
        first = min(first, distance);
    }
    for (int d = 8; d > 0; d >>= 1) {
        int f = __shfl_xor_sync(FULL, first, d, 16), s = __shfl_xor_sync(FULL, next, d, 16);
        next = min(min(next, s), max(first, f));
        first = min(first, f);
    }
    if (lane == 0 && (t >> 4) < nq) {
        best[row] = first;
        second[row] = next;
    }
}

// ------------------------------------------------------------------------------------------------- pictures and signals

#define SORT2(a, b) { int lo = min(a, b); b = max(a, b); a = lo; }

// Median of 3 by 3 pixels by a network of 19 exchanges, edges repeated.
extern "C" __global__ void median3(const unsigned char *image, unsigned char *out, int width, int height)
{
    __shared__ unsigned char tile[14][22];
    int x0 = blockIdx.x * 20 - 1, y0 = blockIdx.y * 12 - 1;
    for (int t = threadIdx.y * 20 + threadIdx.x; t < 14 * 22; t += 240) {
        int x = min(max(x0 + t % 22, 0), width - 1), y = min(max(y0 + t / 22, 0), height - 1);
        tile[t / 22][t % 22] = image[y * width + x];
    }
    __syncthreads();
    int x = blockIdx.x * 20 + threadIdx.x, y = blockIdx.y * 12 + threadIdx.y;
    if (x >= width || y >= height)
        return;
    int p[9];
    for (int i = 0; i < 9; i++)
        p[i] = tile[threadIdx.y + i / 3][threadIdx.x + i % 3];
    SORT2(p[1], p[2]) SORT2(p[4], p[5]) SORT2(p[7], p[8])
    SORT2(p[0], p[1]) SORT2(p[3], p[4]) SORT2(p[6], p[7])
    SORT2(p[1], p[2]) SORT2(p[4], p[5]) SORT2(p[7], p[8])
    SORT2(p[0], p[3]) SORT2(p[5], p[8]) SORT2(p[4], p[7])
    SORT2(p[3], p[6]) SORT2(p[1], p[4]) SORT2(p[2], p[5])
    SORT2(p[4], p[7]) SORT2(p[4], p[2]) SORT2(p[6], p[4])
    SORT2(p[4], p[2])
    out[y * width + x] = p[4];
}

__constant__ float taps[9] = {1, -2, 3, 5, 8, 5, 3, -2, 1};

// Low-pass filter of complex samples that keeps every third: samples are staged in shared memory.
extern "C" __global__ void fir_decimate(const float2 *signal, float2 *out, int m)
{
    __shared__ float2 stage[3 * 160 + 6];
    int first = blockIdx.x * 160, samples = 3 * m + 6;
    for (int s = threadIdx.x; s < 3 * 160 + 6; s += 160)
        if (3 * first + s < samples)
            stage[s] = signal[3 * first + s];
    __syncthreads();
    int i = first + threadIdx.x;
    if (i < m) {
        float re = 0, im = 0;
        for (int j = 0; j < 9; j++) {
            float2 v = stage[3 * threadIdx.x + j];
            re = fmaf(taps[j], v.x, re);
            im = fmaf(taps[j], v.y, im);
        }
        out[i] = make_float2(re, im);
    }
}

__device__ __forceinline__ void full_add(unsigned a, unsigned b, unsigned c, unsigned &sum, unsigned &carry)
{
    unsigned t = a ^ b;
    sum = t ^ c;
    carry = (a & b) | (t & c);
}

// Game of Life on a torus, 32 cells a word, with adders made of bitwise operations.
extern "C" __global__ void life_bits(const unsigned *board, unsigned *out, int words, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= words || y >= height)
        return;
    int left = (x + words - 1) % words, right = (x + 1) % words;
    unsigned ones[3], twos[3], centre = 0;
#pragma unroll
    for (int d = 0; d < 3; d++) {
        const unsigned *row = board + (y + d + height - 1) % height * words;
        unsigned c = row[x], l = __funnelshift_l(row[left], c, 1), r = __funnelshift_r(c, row[right], 1);
        if (d == 1) {
            centre = c;
            ones[d] = l ^ r;
            twos[d] = l & r;
        } else
            full_add(l, c, r, ones[d], twos[d]);
    }
    unsigned one, carry, two, four, rest;
    full_add(ones[0], ones[1], ones[2], one, carry);
    full_add(twos[0], twos[1], twos[2], two, four);
    rest = two & carry;
    two ^= carry;
    four |= rest;
    out[y * words + x] = two & ~four & (one | centre);
}

// ------------------------------------------------------------------------------------------- text, numbers, interpreters

#define PIECE 29

// Rabin-Karp: counts of several patterns of one length, with a rolling hash and a check of each hit.
extern "C" __global__ void rabin_karp(const unsigned char *text, const unsigned char *pattern, int *count, int patterns, int m, int n)
{
    __shared__ unsigned wanted[8];
    if (threadIdx.x < patterns) {
        unsigned h = 0;
        for (int j = 0; j < m; j++)
            h = h * 257u + pattern[threadIdx.x * m + j];
        wanted[threadIdx.x] = h;
    }
    __syncthreads();
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * PIECE, last = min(first + PIECE, n - m + 1);
    if (first >= last)
        return;
    unsigned h = 0, power = 1;
    for (int j = 0; j < m; j++)
        h = h * 257u + text[first + j];
    for (int j = 1; j < m; j++)
        power *= 257u;
    for (int i = first; i < last; i++) {
        for (int p = 0; p < patterns; p++)
            if (h == wanted[p]) {
                int j = 0;
                while (j < m && text[i + j] == pattern[p * m + j])
                    j++;
                if (j == m)
                    atomicAdd(&count[p], 1);
            }
        if (i + 1 < last)
            h = (h - text[i] * power) * 257u + text[i + m];
    }
}

// Stack machine: reverse Polish programs of random bytes, neighbouring threads run different ones.
extern "C" __global__ void rpn_eval(const unsigned char *code, const int *variable, int *out, int programs, int size, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const unsigned char *program = code + i % programs * size;
    int stack[12], sp = 0;
    for (int pc = 0; pc < size; pc++) {
        int op = program[pc];
        if (sp == 12)
            sp = 3;
        if (sp < 2) {
            stack[sp++] = variable[i] + op;
            continue;
        }
        int a = stack[sp - 2], b = stack[sp - 1];
        switch (op % 12) {
        case 0: stack[sp++] = op >> 3; break;
        case 1: stack[sp++] = variable[i]; break;
        case 2: stack[--sp - 1] = a + b; break;
        case 3: stack[--sp - 1] = a - b; break;
        case 4: stack[--sp - 1] = a * b; break;
        case 5: stack[--sp - 1] = b ? a / b : a; break;
        case 6: stack[sp++] = b; break;
        case 7: stack[sp - 2] = b; stack[sp - 1] = a; break;
        case 8: stack[--sp - 1] = a < b ? a : b; break;
        case 9: stack[sp - 1] = ~b; break;
        case 10:
            if (b > 0)
                pc += op % 3;
            break;
        default: stack[--sp - 1] = a ^ (b >> 1); break;
        }
    }
    out[i] = stack[sp - 1];
}

__device__ __forceinline__ unsigned times2(unsigned w)
{
    return ((w & 0x7f7f7f7fu) << 1) ^ (((w >> 7) & 0x01010101u) * 0x1bu);
}

// A cipher like AES: substitution from a table in shared memory, shifted rows, mixed columns, round keys.
extern "C" __global__ void aes_rounds(const uint4 *plain, const unsigned char *box, const uint4 *round_key, uint4 *cipher, int rounds, int n)
{
    __shared__ unsigned char sbox[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        sbox[b] = box[b];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    uint4 p = plain[i], k = round_key[0];
    unsigned s[4] = {p.x ^ k.x, p.y ^ k.y, p.z ^ k.z, p.w ^ k.w};
    for (int r = 1; r <= rounds; r++) {
        unsigned t[4];
#pragma unroll
        for (int c = 0; c < 4; c++) {
            unsigned w = sbox[s[c] & 255] | sbox[(s[(c + 1) & 3] >> 8) & 255] << 8 | sbox[(s[(c + 2) & 3] >> 16) & 255] << 16 |
                         (unsigned)sbox[s[(c + 3) & 3] >> 24] << 24;
            if (r < rounds) {
                unsigned turned = __funnelshift_r(w, w, 8), twice = times2(w ^ turned);
                w = twice ^ turned ^ __funnelshift_r(w, w, 16) ^ __funnelshift_r(w, w, 24);
            }
            t[c] = w;
        }
        k = round_key[r];
        s[0] = t[0] ^ k.x, s[1] = t[1] ^ k.y, s[2] = t[2] ^ k.z, s[3] = t[3] ^ k.w;
    }
    cipher[i] = make_uint4(s[0], s[1], s[2], s[3]);
}

__device__ __forceinline__ u64 redc_mul(u64 a, u64 b, u64 p, u64 negative_inverse)
{
    u64 low = a * b, high = __umul64hi(a, b), m = low * negative_inverse;
    u64 r = high + __umul64hi(m, p) + (low != 0);
    return r >= p ? r - p : r;
}

// Powers modulo an odd p below 2^63 in Montgomery's form; check is base^e * base^(p-1-e), which Fermat says is 1.
extern "C" __global__ void montgomery_power(const u64 *base, const unsigned *exponent, u64 *power, u64 *check, u64 p, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    u64 inverse = p;
    for (int s = 0; s < 5; s++)
        inverse *= 2 - p * inverse;
    inverse = 0 - inverse;
    u64 one = (0 - p) % p, b = base[i] % p, x = 0;
    // b * 2^64 mod p by doubling
    u64 form = b;
    for (int s = 0; s < 64; s++) {
        form += form;
        if (form >= p)
            form -= p;
    }
    u64 both = one;
    for (int round = 0; round < 2; round++) {
        u64 e = round == 0 ? exponent[i] : p - 1 - exponent[i], square = form, r = one;
        while (e) {
            if (e & 1)
                r = redc_mul(r, square, p, inverse);
            square = redc_mul(square, square, p, inverse);
            e >>= 1;
        }
        both = redc_mul(both, r, p, inverse);
        if (round == 0)
            x = redc_mul(r, 1, p, inverse);
    }
    power[i] = x;
    check[i] = redc_mul(both, 1, p, inverse);
}

#define P 998244353u

__device__ unsigned mul_mod(unsigned a, unsigned b)
{
    return (unsigned)((u64)a * b % P);
}

// Number-theoretic transforms of 512 numbers, radix 2, one a block.
extern "C" __global__ void ntt_shared(const unsigned *data, unsigned *out)
{
    __shared__ unsigned v[512], root[256];
    int tid = threadIdx.x;
    unsigned w = 3, r = 1, g = 1;
    for (unsigned e = (P - 1) / 512; e; e >>= 1) {
        if (e & 1)
            g = mul_mod(g, w);
        w = mul_mod(w, w);
    }
    for (int e = tid; e; e >>= 1) {
        if (e & 1)
            r = mul_mod(r, g);
        g = mul_mod(g, g);
    }
    root[tid] = r;
    for (int i = tid; i < 512; i += 256)
        v[__brev(i) >> 23] = data[blockIdx.x * 512 + i];
    for (int half = 1; half < 512; half <<= 1) {
        __syncthreads();
        int k = tid & (half - 1), i = 2 * tid - k;
        unsigned a = v[i], b = mul_mod(v[i + half], root[k * (256 / half)]);
        v[i] = a + b >= P ? a + b - P : a + b;
        v[i + half] = a >= b ? a - b : a + P - b;
    }
    __syncthreads();
    for (int i = tid; i < 512; i += 256)
        out[blockIdx.x * 512 + i] = v[i];
}

// Edit distances of many texts to a pattern of at most 64 letters: Myers's bit vectors.
extern "C" __global__ void myers_distance(const unsigned char *text, const unsigned char *pattern, int *distance, int m, int length, int n)
{
    __shared__ u64 where[4];
    if (threadIdx.x < 4) {
        u64 bits = 0;
        for (int j = 0; j < m; j++)
            if (pattern[j] == threadIdx.x)
                bits |= 1ULL << j;
        where[threadIdx.x] = bits;
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    u64 pv = ~0ULL, mv = 0, last = 1ULL << (m - 1);
    int score = m;
    for (int j = 0; j < length; j++) {
        u64 eq = where[text[j * n + i] & 3];
        u64 xv = eq | mv, xh = (((eq & pv) + pv) ^ pv) | eq;
        u64 ph = mv | ~(xh | pv), mh = pv & xh;
        if (ph & last)
            score++;
        else if (mh & last)
            score--;
        ph = (ph << 1) | 1;
        mh <<= 1;
        pv = mh | ~(xv | ph);
        mv = ph & xv;
    }
    distance[i] = score;
}

// Weighted histogram: float atomics in shared memory, then those bins that are not empty.
extern "C" __global__ void weighted_histogram(const float *value, const float *weight, float *out, int bins, int n)
{
    extern __shared__ float local_bins[];
    for (int b = threadIdx.x; b < bins; b += blockDim.x)
        local_bins[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        int b = (int)(value[i] * bins);
        if (b >= 0 && b < bins)
            atomicAdd(&local_bins[b], weight[i]);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < bins; b += blockDim.x)
        if (local_bins[b] != 0)
            atomicAdd(out + b, local_bins[b]);
}

// Lower bounds in a sorted array: a tile of sixteen lanes cuts the range by seventeen in each step.
extern "C" __global__ void kary_search(const int *keys, const int *query, int *at, int size, int n)
{
    cg::thread_block_tile<16> tile = cg::tiled_partition<16>(cg::this_thread_block());
    int q = blockIdx.x * (blockDim.x / 16) + threadIdx.x / 16;
    if (q >= n)
        return;
    int wanted = query[q], low = 0, high = size;
    while (low < high) {
        int span = high - low;
        int probe = low + (int)((long long)span * tile.thread_rank() / 16);
        unsigned below = tile.ballot(keys[probe] < wanted);
        int c = __popc(below);
        int from = low, to = high;
        if (c < 16)
            to = tile.shfl(probe, c);
        if (c > 0)
            from = tile.shfl(probe, c - 1) + 1;
        low = from;
        high = c == 0 ? low : to;
    }
    if (tile.thread_rank() == 0)
        at[q] = low;
}
