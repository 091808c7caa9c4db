// Kernels of kinds that unseen.cu, unseen2.cu and bounds.cu lack: sorting, merging, graphs, strings, interpreters, searches,
// byte pictures, local arrays. unseen3.toml launches them at moderate, ragged sizes. No kernel's counts depend on the order of
// atomics: none has an atomic whose result is used.

#include <cooperative_groups.h>

#define FULL 0xFFFFFFFFu

// ------------------------------------------------------------------------------------------------ scans, sorts, compaction

// Stream compaction: each block keeps the numbers above a limit, in order, in its own part of out.
__global__ void compact_ballot(const float *in, float *out, int *kept, float limit, int n)
{
    __shared__ int base[33];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float x = i < n ? in[i] : 0;
    bool keep = i < n && x > limit;
    unsigned votes = __ballot_sync(FULL, keep);
    if (lane == 0)
        base[warp] = __popc(votes);
    __syncthreads();
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int w = 0; w < blockDim.x / 32; w++) {
            int count = base[w];
            base[w] = sum;
            sum += count;
        }
        kept[blockIdx.x] = sum;
    }
    __syncthreads();
    if (keep)
        out[blockIdx.x * blockDim.x + base[warp] + __popc(votes & ((1u << lane) - 1))] = x;
}

// Inclusive sums that start again at each head, a warp at a time; a warp has 4 rounds with a carry.
__global__ void segmented_scan(const int *in, const unsigned char *head, int *out, int n)
{
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, carry = 0;
    for (int round = 0; round < 4; round++) {
        int i = (warp * 4 + round) * 32 + lane;
        if (i - lane >= n)
            break;
        int sum = i < n ? in[i] : 0;
        unsigned heads = __ballot_sync(FULL, i < n && head[i]);
        unsigned below = heads & (FULL >> (31 - lane));
        int first = below ? 31 - __clz(below) : 0;
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(FULL, sum, d);
            if (lane - d >= first)
                sum += other;
        }
        if (!below)
            sum += carry;
        carry = __shfl_sync(FULL, sum, 31);
        if (i < n)
            out[i] = sum;
    }
}

// One pass of a radix sort within a block: ranks by match_any within a warp, counters per warp and digit, then the scatter.
__global__ void radix_scatter(const unsigned *key, unsigned *out, int shift, int n)
{
    __shared__ int count[8][16];
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    if (threadIdx.x < 128)
        count[threadIdx.x / 16][threadIdx.x % 16] = 0;
    __syncthreads();
    unsigned k = i < n ? key[i] : FULL;
    int digit = k >> shift & 15;
    unsigned same = __match_any_sync(FULL, digit);
    int rank = __popc(same & ((1u << lane) - 1));
    if (rank == 0)
        count[warp][digit] = __popc(same);
    __syncthreads();
    if (threadIdx.x < 16) {
        int total = 0;
        for (int w = 0; w < warps; w++) {
            int c = count[w][threadIdx.x];
            count[w][threadIdx.x] = total;
            total += c;
        }
        int sum = total;
        for (int d = 1; d < 16; d *= 2) {
            int other = __shfl_up_sync(0xFFFF, sum, d, 16);
            if (threadIdx.x >= d)
                sum += other;
        }
        for (int w = 0; w < warps; w++)
            count[w][threadIdx.x] += sum - total;
    }
    __syncthreads();
    int at = blockIdx.x * blockDim.x + count[warp][digit] + rank;
    if (at < n)
        out[at] = k;
}

// Merge path: each thread finds its diagonal by bisection and merges 7 items.
__global__ void merge_path(const int *a, const int *b, int *out, int na, int nb)
{
    const int items = 7;
    int diagonal = (blockIdx.x * blockDim.x + threadIdx.x) * items;
    if (diagonal >= na + nb)
        return;
    int low = max(0, diagonal - nb), high = min(diagonal, na);
    while (low < high) {
        int middle = (low + high) / 2;
        if (a[middle] <= b[diagonal - 1 - middle])
            low = middle + 1;
        else
            high = middle;
    }
    int x = low, y = diagonal - low;
    for (int k = 0; k < items && x + y < na + nb; k++) {
        bool left = y >= nb || (x < na && a[x] <= b[y]);
        int value = left ? a[x++] : b[y++];
        out[diagonal + k] = value;
    }
}

// Pairs of key and index in shared memory; one block sorts 512.
__global__ void bitonic_shared(const float *in, float *out, int *order, int n)
{
    __shared__ float key[512];
    __shared__ short index[512];
    for (int i = threadIdx.x; i < 512; i += blockDim.x) {
        int at = blockIdx.x * 512 + i;
        key[i] = at < n ? in[at] : 3e38f;
        index[i] = i;
    }
    __syncthreads();
    for (int k = 2; k <= 512; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            int i = 2 * threadIdx.x - (threadIdx.x & (j - 1)), other = i + j;
            bool up = (i & k) == 0;
            if ((key[i] > key[other]) == up) {
                float x = key[i];
                key[i] = key[other];
                key[other] = x;
                short s = index[i];
                index[i] = index[other];
                index[other] = s;
            }
            __syncthreads();
        }
    for (int i = threadIdx.x; i < 512; i += blockDim.x) {
        int at = blockIdx.x * 512 + i;
        if (at < n) {
            out[at] = key[i];
            order[at] = index[i];
        }
    }
}

// A single block scans any length: 4 items a thread, two levels of shuffles, a carry between the rounds.
__global__ void scan_shuffle(const int4 *in, int4 *out, int quads)
{
    __shared__ int sums[32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, carry = 0;
    for (int first = 0; first < quads; first += blockDim.x) {
        int i = first + threadIdx.x;
        int4 v = i < quads ? in[i] : make_int4(0, 0, 0, 0);
        int mine = v.x + v.y + v.z + v.w, sum = mine;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            int other = __shfl_up_sync(FULL, sum, d);
            sum += lane >= d ? other : 0;
        }
        if (lane == 31)
            sums[warp] = sum;
        __syncthreads();
        if (warp == 0) {
            int s = lane < blockDim.x / 32 ? sums[lane] : 0;
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                int other = __shfl_up_sync(FULL, s, d);
                s += lane >= d ? other : 0;
            }
            sums[lane] = s;
        }
        __syncthreads();
        int before = carry + sum - mine + (warp ? sums[warp - 1] : 0);
        carry += sums[31];
        if (i < quads)
            out[i] = make_int4(before, before + v.x, before + v.x + v.y, before + v.x + v.y + v.z);
        __syncthreads();
    }
}

// ------------------------------------------------------------------------------------------------------- sparse and graphs

// ELLPACK, column by column, with -1 where a row is short.
__global__ void spmv_ell(const int *col, const double *value, const double *x, double *y, int rows, int width)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    double sum = 0;
    for (int k = 0; k < width; k++) {
        int c = col[k * rows + row];
        if (c < 0)
            break;
        sum += value[k * rows + row] * x[c];
    }
    y[row] = sum;
}

// Coordinates sorted by row: a segmented sum in the warp, then one atomic per row and warp.
__global__ void spmv_coo(const int *row, const int *col, const float *value, const float *x, float *y, int entries)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    int r = i < entries ? row[i] : -1;
    float sum = i < entries ? value[i] * x[col[i]] : 0;
    for (int d = 1; d < 32; d *= 2) {
        int other = __shfl_down_sync(FULL, r, d);
        float more = __shfl_down_sync(FULL, sum, d);
        if (lane + d < 32 && other == r)
            sum += more;
    }
    int previous = __shfl_up_sync(FULL, r, 1);
    if (r >= 0 && (lane == 0 || previous != r))
        atomicAdd(&y[r], sum);
}

// Bottom-up step of a breadth-first search: an unvisited vertex looks for one neighbour in the frontier (a bit map).
__global__ void bfs_bottom_up(const int *start, const int *to, const unsigned *frontier, const int *level_in, int *level_out,
                              unsigned *next, int level, int vertices)
{
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    bool found = false;
    if (v < vertices) {
        int mine = level_in[v];
        if (mine < 0)
            for (int e = start[v]; e < start[v + 1]; e++) {
                int u = to[e];
                if (frontier[u / 32] >> u % 32 & 1) {
                    found = true;
                    break;
                }
            }
        level_out[v] = found ? level : mine;
    }
    unsigned bits = __ballot_sync(FULL, found);
    if (threadIdx.x % 32 == 0 && v < vertices)
        next[v / 32] = bits;
}

// Hooking of a union-find: both ends of an edge climb to their roots, and the larger root gets the smaller one.
__global__ void union_hook(const int2 *edge, const int *parent, int *hooked, int edges)
{
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= edges)
        return;
    int2 ends = edge[e];
    int a = ends.x, b = ends.y;
    while (parent[a] != a)
        a = parent[a];
    while (parent[b] != b)
        b = parent[b];
    if (a != b)
        atomicMin(&hooked[max(a, b)], min(a, b));
}

// The rows of long vertices are taken by the whole warp, one after the other; short ones by their own thread.
__global__ void expand_by_ballot(const int *start, const int *to, const float *weight, float *sum, int vertices)
{
    int v = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    int from = v < vertices ? start[v] : 0, until = v < vertices ? start[v + 1] : 0;
    float mine = 0;
    unsigned large = __ballot_sync(FULL, until - from >= 24);
    while (large) {
        int leader = __ffs(large) - 1;
        int first = __shfl_sync(FULL, from, leader), last = __shfl_sync(FULL, until, leader);
        float part = 0;
        for (int e = first + lane; e < last; e += 32)
            part += weight[to[e]];
        for (int d = 16; d; d /= 2)
            part += __shfl_xor_sync(FULL, part, d);
        if (lane == leader)
            mine = part;
        large &= large - 1;
    }
    if (until - from < 24)
        for (int e = from; e < until; e++)
            mine += weight[to[e]];
    if (v < vertices)
        sum[v] = mine;
}

// Buckets of 8 fingerprints: a tile of 8 lanes probes a bucket per step, until it finds the key's or an empty place.
__global__ void bucket_probe(const unsigned char *table, const unsigned *key, int *at, int n, unsigned buckets)
{
    namespace cg = cooperative_groups;
    cg::thread_block_tile<8> tile = cg::tiled_partition<8>(cg::this_thread_block());
    int i = (blockIdx.x * blockDim.x + threadIdx.x) / 8;
    if (i >= n)
        return;
    unsigned k = key[i], bucket = k * 2654435761u % buckets, print = (k >> 26) + 1;
    int found = -1;
    for (int step = 0; step < 64; step++) {
        unsigned have = table[bucket * 8 + tile.thread_rank()];
        unsigned hit = tile.ballot(have == print), hole = tile.ballot(have == 0);
        if (hit) {
            found = bucket * 8 + __ffs(hit) - 1;
            break;
        }
        if (hole)
            break;
        bucket = bucket + 1 == buckets ? 0 : bucket + 1;
    }
    if (tile.thread_rank() == 0)
        at[i] = found;
}

// ------------------------------------------------------------------------------------------------- grids, pictures, physics

// 7 points, the column in registers, the plane in shared memory.
template <typename T>
__device__ __forceinline__ T seven(T low, T middle, T high, T w, T e, T n, T s)
{
    return T(0.4) * middle + T(0.1) * (low + high + w + e + n + s);
}

__global__ void stencil_roll(const float *in, float *out, int nx, int ny, int nz)
{
    __shared__ float plane[10][34];
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1, x = blockIdx.x * 32 + tx, y = blockIdx.y * 8 + ty;
    bool inside = x < nx - 1 && y < ny - 1;
    size_t layer = (size_t)nx * ny, at = (size_t)min(y, ny - 1) * nx + min(x, nx - 1);
    float low = in[at], middle = in[at + layer], high;
    for (int z = 1; z < nz - 1; z++) {
        size_t here = at + z * layer;
        high = in[here + layer];
        plane[ty][tx] = middle;
        if (threadIdx.y == 0)
            plane[0][tx] = in[here - nx];
        if (threadIdx.y == 7 && y < ny - 1)
            plane[9][tx] = in[here + nx];
        if (threadIdx.x == 0)
            plane[ty][0] = in[here - 1];
        if (threadIdx.x == 31 && x < nx - 1)
            plane[ty][33] = in[here + 1];
        __syncthreads();
        if (inside)
            out[here] = seven(low, middle, high, plane[ty][tx - 1], plane[ty][tx + 1], plane[ty - 1][tx], plane[ty + 1][tx]);
        __syncthreads();
        low = middle;
        middle = high;
    }
}

__constant__ float sharpen[7 * 7] = {
    0, 0, -1, -1, -1, 0, 0, 0, -1, -3, -3, -3, -1, 0, -1, -3, 0, 7, 0, -3, -1, -1, -3, 7, 24, 7, -3, -1,
    -1, -3, 0, 7, 0, -3, -1, 0, -1, -3, -3, -3, -1, 0, 0, 0, -1, -1, -1, 0, 0};

// The filter in constant memory, the edges clamped, without shared memory.
__global__ void conv_constant(const unsigned char *in, short *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = -3; dy <= 3; dy++)
        for (int dx = -3; dx <= 3; dx++) {
            int sx = min(max(x + dx, 0), width - 1), sy = min(max(y + dy, 0), height - 1);
            sum += sharpen[(dy + 3) * 7 + dx + 3] * in[sy * width + sx];
        }
    out[y * width + x] = (short)sum;
}

// The column pass of a separable filter: 4 outputs a thread, a tile with halos in dynamic shared memory.
__global__ void separable_columns(const float *in, float *out, const float *weight, int width, int height, int radius)
{
    extern __shared__ float tile[];
    int steps = 4 * blockDim.y, rows = steps + 2 * radius, x = blockIdx.x * blockDim.x + threadIdx.x, top = blockIdx.y * steps;
    for (int r = threadIdx.y; r < rows; r += blockDim.y) {
        int y = top + r - radius;
        tile[r * blockDim.x + threadIdx.x] = x < width && y >= 0 && y < height ? in[y * width + x] : 0;
    }
    __syncthreads();
    if (x >= width)
        return;
    for (int k = 0; k < 4; k++) {
        int r = threadIdx.y + k * blockDim.y, y = top + r;
        if (y >= height)
            break;
        float sum = 0;
        for (int j = 0; j <= 2 * radius; j++)
            sum += weight[j] * tile[(r + j) * blockDim.x + threadIdx.x];
        out[y * width + x] = sum;
    }
}

// Bilinear enlargement of 3-byte pixels.
__global__ void resize_rgb(const uchar3 *in, uchar3 *out, int w, int h, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float fx = (x + 0.5f) * w / width - 0.5f, fy = (y + 0.5f) * h / height - 0.5f;
    int x0 = max((int)floorf(fx), 0), y0 = max((int)floorf(fy), 0), x1 = min(x0 + 1, w - 1), y1 = min(y0 + 1, h - 1);
    float ax = fminf(fmaxf(fx - x0, 0), 1), ay = fminf(fmaxf(fy - y0, 0), 1);
    uchar3 a = in[y0 * w + x0], b = in[y0 * w + x1], c = in[y1 * w + x0], d = in[y1 * w + x1];
    uchar3 p;
    p.x = (unsigned char)((1 - ay) * ((1 - ax) * a.x + ax * b.x) + ay * ((1 - ax) * c.x + ax * d.x) + 0.5f);
    p.y = (unsigned char)((1 - ay) * ((1 - ax) * a.y + ax * b.y) + ay * ((1 - ax) * c.y + ax * d.y) + 0.5f);
    p.z = (unsigned char)((1 - ay) * ((1 - ax) * a.z + ax * b.z) + ay * ((1 - ax) * c.z + ax * d.z) + 0.5f);
    out[y * width + x] = p;
}

struct Vec { float x, y, z; };

// 12-byte records of positions, a list of neighbours with a cutoff and two layouts of results.
__global__ void lennard_jones(const Vec *position, const int *neighbour, Vec *force, float *energy, int n, int most, float cutoff)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    Vec p = position[i], f = {0, 0, 0};
    float sum = 0;
    for (int k = 0; k < most; k++) {
        Vec q = position[neighbour[k * n + i]];
        float dx = p.x - q.x, dy = p.y - q.y, dz = p.z - q.z, r2 = dx * dx + dy * dy + dz * dz;
        if (r2 < cutoff * cutoff && r2 > 0) {
            float s2 = 0.01f / r2, s6 = s2 * s2 * s2, pull = 24 * s6 * (2 * s6 - 1) / r2;
            f.x += pull * dx;
            f.y += pull * dy;
            f.z += pull * dz;
            sum += 4 * s6 * (s6 - 1);
        }
    }
    force[i] = f;
    energy[i] = sum;
}

// Sphere tracing of a field of balls, with three ways to end.
__device__ __noinline__ float field(float x, float y, float z)
{
    float cx = x - 2 * floorf(x / 2) - 1, cy = y - 2 * floorf(y / 2) - 1, cz = z - 2 * floorf(z / 2) - 1;
    return fminf(sqrtf(cx * cx + cy * cy + cz * cz) - 0.45f, y + 3);
}

__global__ void sphere_march(float *depth, unsigned char *steps, int width, int height)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height)
        return;
    float dx = (2.0f * px - width) / height, dy = 1 - 2.0f * py / height, dz = 1.5f, scale = rsqrtf(dx * dx + dy * dy + dz * dz), t = 0;
    int step = 0;
    while (step < 80) {
        float d = field(t * dx * scale, t * dy * scale, t * dz * scale);
        if (d < 1e-3f * t)
            break;
        t += d;
        if (t > 30) {
            t = -1;
            break;
        }
        step++;
    }
    depth[py * width + px] = t;
    steps[py * width + px] = step;
}

// ------------------------------------------------------------------------------------------------------- learning

// One query a warp, keys one after the other with an online softmax; a head of 64, two numbers a lane, causal.
__global__ void attention_online(const float2 *q, const float2 *k, const float2 *v, float2 *out, int tokens)
{
    int row = blockIdx.x * blockDim.y + threadIdx.y, lane = threadIdx.x;
    if (row >= tokens)
        return;
    float2 mine = q[row * 32 + lane], sum = {0, 0};
    float most = -1e30f, total = 0;
    for (int j = 0; j <= row; j++) {
        float2 key = k[j * 32 + lane];
        float score = mine.x * key.x + mine.y * key.y;
#pragma unroll
        for (int d = 16; d; d /= 2)
            score += __shfl_xor_sync(FULL, score, d);
        score *= 0.125f;
        if (score > most) {
            float shrink = __expf(most - score);
            total *= shrink;
            sum.x *= shrink;
            sum.y *= shrink;
            most = score;
        }
        float p = __expf(score - most);
        float2 value = v[j * 32 + lane];
        total += p;
        sum.x += p * value.x;
        sum.y += p * value.y;
    }
    out[row * 32 + lane] = make_float2(sum.x / total, sum.y / total);
}

// Group norm by Welford's merging of means, a block of 5 warps a group.
__global__ void groupnorm_welford(const float *in, const float *gain, float *out, int groups, int size)
{
    __shared__ float means[5], squares[5], counts[5];
    const float *from = in + (size_t)blockIdx.x * size;
    float mean = 0, m2 = 0, count = 0;
    for (int i = threadIdx.x; i < size; i += blockDim.x) {
        float x = from[i], delta = x - mean;
        count += 1;
        mean += delta / count;
        m2 += delta * (x - mean);
    }
    for (int d = 16; d; d /= 2) {
        float b = __shfl_down_sync(FULL, mean, d), q = __shfl_down_sync(FULL, m2, d), c = __shfl_down_sync(FULL, count, d);
        float both = count + c, delta = b - mean;
        if (both > 0) {
            mean += delta * c / both;
            m2 += q + delta * delta * count * c / both;
        }
        count = both;
    }
    if (threadIdx.x % 32 == 0) {
        means[threadIdx.x / 32] = mean;
        squares[threadIdx.x / 32] = m2;
        counts[threadIdx.x / 32] = count;
    }
    __syncthreads();
    mean = means[0], m2 = squares[0], count = counts[0];
    for (int w = 1; w < 5; w++) {
        float both = count + counts[w], delta = means[w] - mean;
        mean += delta * counts[w] / both;
        m2 += squares[w] + delta * delta * count * counts[w] / both;
        count = both;
    }
    float scale = rsqrtf(m2 / count + 1e-5f) * gain[blockIdx.x % groups];
    for (int i = threadIdx.x; i < size; i += blockDim.x)
        out[(size_t)blockIdx.x * size + i] = (from[i] - mean) * scale;
}

// Bags of embeddings of different lengths; padding is skipped.
__global__ void embedding_bag(const int *offset, const int *token, const float4 *table, float4 *out, int bags, int quads, int padding)
{
    int bag = blockIdx.x * blockDim.y + threadIdx.y;
    if (bag >= bags)
        return;
    int first = offset[bag], last = offset[bag + 1];
    for (int c = threadIdx.x; c < quads; c += blockDim.x) {
        float4 sum = make_float4(0, 0, 0, 0);
        int used = 0;
        for (int k = first; k < last; k++) {
            int t = token[k];
            if (t == padding)
                continue;
            float4 e = __ldg(&table[(size_t)t * quads + c]);
            sum.x += e.x, sum.y += e.y, sum.z += e.z, sum.w += e.w;
            used++;
        }
        float scale = used ? 1.0f / used : 0;
        out[(size_t)bag * quads + c] = make_float4(sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale);
    }
}

// The 8 largest of a row in a heap in local memory, one row a thread.
__global__ void topk_heap(const float *in, float *out, int rows, int cols)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float heap[8];
    for (int k = 0; k < 8; k++)
        heap[k] = -1e30f;
    for (int c = 0; c < cols; c++) {
        float x = in[c * rows + row];
        if (x <= heap[0])
            continue;
        int at = 0;
        while (2 * at + 1 < 8) {
            int child = 2 * at + 1;
            if (child + 1 < 8 && heap[child + 1] < heap[child])
                child++;
            if (heap[child] >= x)
                break;
            heap[at] = heap[child];
            at = child;
        }
        heap[at] = x;
    }
    for (int k = 0; k < 8; k++)
        out[row * 8 + k] = heap[k];
}

// Packed bytes by dp4a with tiles in shared memory, 32 x 8 threads for 32 x 32 results, and requantisation.
__global__ void gemm_dp4a(const int *a, const int *b, signed char *c, int m, int n, int packs, float scale)
{
    __shared__ int left[32][9], right[32][9];
    int col = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y, flat = threadIdx.y * 32 + threadIdx.x;
    int sum[4] = {0, 0, 0, 0};
    for (int k = 0; k < packs; k += 8) {
        int r = flat / 8, p = flat % 8;
        left[r][p] = blockIdx.y * 32 + r < m && k + p < packs ? a[(blockIdx.y * 32 + r) * packs + k + p] : 0;
        right[r][p] = blockIdx.x * 32 + r < n && k + p < packs ? b[(blockIdx.x * 32 + r) * packs + k + p] : 0;
        __syncthreads();
#pragma unroll
        for (int p = 0; p < 8; p++)
#pragma unroll
            for (int s = 0; s < 4; s++)
                sum[s] = __dp4a(left[threadIdx.y + 8 * s][p], right[threadIdx.x][p], sum[s]);
        __syncthreads();
    }
#pragma unroll
    for (int s = 0; s < 4; s++)
        if (row + 8 * s < m && col < n)
            c[(row + 8 * s) * n + col] = (signed char)max(-128, min(127, __float2int_rn(sum[s] * scale)));
}

// --------------------------------------------------------------------------------------------- strings, codes, interpreters

// Knuth, Morris and Pratt: a thread has a piece of the text, which overlaps the next; the failure table is in shared memory.
__global__ void kmp_count(const unsigned char *text, const unsigned char *pattern, const int *failure, int *count, int n, int m, int piece)
{
    __shared__ unsigned char p[32];
    __shared__ int f[32];
    if (threadIdx.x < m) {
        p[threadIdx.x] = pattern[threadIdx.x];
        f[threadIdx.x] = failure[threadIdx.x];
    }
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = i * piece, last = min(first + piece + m - 1, n), matched = 0, found = 0;
    if (first >= n)
        return;
    for (int at = first; at < last; at++) {
        unsigned char c = text[at];
        while (matched && p[matched] != c)
            matched = f[matched - 1];
        if (p[matched] == c)
            matched++;
        if (matched == m) {
            found++;
            matched = f[m - 1];
        }
    }
    count[i] = found;
}

// Longest earlier match in a window, as an LZ77 coder looks for it, at each fourth place.
__global__ void lz_match(const unsigned char *text, unsigned short *length, unsigned short *distance, int n, int window)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, at = 4 * i;
    if (at >= n)
        return;
    int best = 0, where = 0;
    for (int back = 1; back <= window && back <= at; back++) {
        if (best && at + best < n && text[at - back + best] != text[at + best])
            continue;
        int same = 0;
        while (same < 34 && at + same < n && text[at - back + same] == text[at + same])
            same++;
        if (same > best) {
            best = same;
            where = back;
            if (best == 34)
                break;
        }
    }
    length[i] = best;
    distance[i] = where;
}

// A machine of 4 registers; each thread starts elsewhere in the program and may jump.
__global__ void register_machine(const unsigned *program, int *out, int size, int steps, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    int a = i, b = i * 7 + 1, c = 1, d = 0, pc = i % size;
    for (int s = 0; s < steps; s++) {
        unsigned word = program[pc];
        int value = word >> 8 & 0xFF;
        pc = pc + 1 == size ? 0 : pc + 1;
        switch (word % 13) {
        case 0: a += b; break;
        case 1: b -= value; break;
        case 2: c = c * 31 + a; break;
        case 3: d ^= c >> 3; break;
        case 4: a = max(a, d) + 1; break;
        case 5: if (a & 1) pc = value % size; break;
        case 6: b = __popc(a) * value; break;
        case 7: c = d / (value + 1); break;
        case 8: { int t = a; a = b; b = t; } break;
        case 9: d = __clz(c) + d; break;
        case 10: if (d > c) pc = (pc + value) % size; break;
        case 11: a = __brev(a) ^ value; break;
        default: s = steps;
        }
    }
    out[i] = a ^ b ^ c ^ d;
}

// Score of a local alignment: one block, the anti-diagonals one after the other, three of them in shared memory.
__global__ void smith_waterman(const unsigned char *a, const unsigned char *b, int *score, int length, int other)
{
    __shared__ short line[3][130];
    const unsigned char *mine = a + blockIdx.x * length;
    int t = threadIdx.x, best = 0;
    for (int k = t; k < 390; k += blockDim.x)
        line[k / 130][k % 130] = 0;
    unsigned char c = t < length ? mine[t] : 255;
    __syncthreads();
    for (int d = 0; d < length + other - 1; d++) {
        short *now = line[d % 3], *last = line[(d + 2) % 3], *before = line[(d + 1) % 3];
        int j = d - t;
        if (t < length && j >= 0 && j < other) {
            int up = last[t] - 2, left = last[t + 1] - 2, cross = before[t] + (c == b[j] ? 3 : -1);
            int value = max(max(0, cross), max(up, left));
            now[t + 1] = value;
            best = max(best, value);
        }
        __syncthreads();
    }
    best = __reduce_max_sync(FULL, best);
    if (t % 32 == 0)
        atomicMax(&score[blockIdx.x], best);
}

// Three bytes become four characters, with the padding of the last group.
__global__ void base64(const unsigned char *in, char *out, int n)
{
    int g = blockIdx.x * blockDim.x + threadIdx.x;
    if (3 * g >= n)
        return;
    int have = min(3, n - 3 * g);
    unsigned v = in[3 * g] << 16 | (have > 1 ? in[3 * g + 1] << 8 : 0) | (have > 2 ? in[3 * g + 2] : 0);
    for (int k = 0; k < 4; k++) {
        int s = v >> (18 - 6 * k) & 63;
        char c;
        if (k > have)
            c = '=';
        else if (s < 26)
            c = 'A' + s;
        else if (s < 52)
            c = 'a' + s - 26;
        else if (s < 62)
            c = '0' + s - 52;
        else
            c = s == 62 ? '+' : '/';
        out[4 * g + k] = c;
    }
}

// CRC-32 of packets of different lengths, one a thread, the table made by the block in shared memory.
__global__ void crc_packets(const int *start, const unsigned char *data, unsigned *crc, int packets)
{
    __shared__ unsigned table[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) {
        unsigned c = i;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? c >> 1 ^ 0xEDB88320u : c >> 1;
        table[i] = c;
    }
    __syncthreads();
    int p = blockIdx.x * blockDim.x + threadIdx.x;
    if (p >= packets)
        return;
    unsigned c = FULL;
    for (int i = start[p]; i < start[p + 1]; i++)
        c = table[(c ^ data[i]) & 255] ^ c >> 8;
    crc[p] = ~c;
}

// ---------------------------------------------------------------------------------------------- numbers, bits, local arrays

// 1024 points in shared memory, radix 4 with digits reversed on reading.
__global__ void fft_radix4(const float2 *in, float2 *out)
{
    __shared__ float2 s[1024];
    int t = threadIdx.x;
    for (int k = 0; k < 4; k++) {
        int i = t + 256 * k, r = (__brev(i) >> 22), digit = (r & 0x155) << 1 | (r >> 1 & 0x155);
        s[digit] = in[blockIdx.x * 1024 + i];
    }
    __syncthreads();
    for (int quarter = 1; quarter < 1024; quarter *= 4) {
        int j = t % quarter, base = t / quarter * quarter * 4 + j;
        float2 v[4];
#pragma unroll
        for (int k = 0; k < 4; k++) {
            float sine, cosine;
            float2 x = s[base + k * quarter];
            sincospif(-0.5f * j * k / quarter, &sine, &cosine);
            v[k] = make_float2(x.x * cosine - x.y * sine, x.x * sine + x.y * cosine);
        }
        float2 a = {v[0].x + v[2].x, v[0].y + v[2].y}, b = {v[0].x - v[2].x, v[0].y - v[2].y};
        float2 c = {v[1].x + v[3].x, v[1].y + v[3].y}, d = {v[1].y - v[3].y, v[3].x - v[1].x};
        s[base] = make_float2(a.x + c.x, a.y + c.y);
        s[base + quarter] = make_float2(b.x + d.x, b.y + d.y);
        s[base + 2 * quarter] = make_float2(a.x - c.x, a.y - c.y);
        s[base + 3 * quarter] = make_float2(b.x - d.x, b.y - d.y);
        __syncthreads();
    }
    for (int k = 0; k < 4; k++)
        out[blockIdx.x * 1024 + t + 256 * k] = s[t + 256 * k];
}

// Normal numbers by the polar method: each thread rejects as often as its generator says.
__global__ void polar_rejection(float *mean, int *rejected, int samples, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long state = i * 0x9E3779B97F4A7C15ull + 12345;
    float sum = 0;
    int again = 0;
    for (int k = 0; k < samples; k += 2) {
        float u, v, s;
        while (true) {
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            u = (int)(state >> 32) * 4.656613e-10f;
            state = state * 6364136223846793005ull + 1442695040888963407ull;
            v = (int)(state >> 32) * 4.656613e-10f;
            s = u * u + v * v;
            if (s < 1 && s > 0)
                break;
            again++;
        }
        float r = sqrtf(-2 * logf(s) / s);
        sum += u * r + v * r;
    }
    mean[i] = sum / samples;
    rejected[i] = again;
}

// 32 x 32 bits are transposed by ballots, a warp a tile; tiles lie 8 in a row of the bit matrix.
__global__ void bit_transpose(const unsigned *in, unsigned *out, int words, int rows)
{
    int lane = threadIdx.x, tx = blockIdx.x, ty = blockIdx.y * blockDim.y + threadIdx.y, tall = (rows + 31) / 32;
    if (ty >= tall)
        return;
    int row = ty * 32 + lane;
    unsigned mine = row < rows ? in[row * words + tx] : 0, result = 0;
#pragma unroll 4
    for (int bit = 0; bit < 32; bit++) {
        unsigned plane = __ballot_sync(FULL, mine >> bit & 1);
        if (lane == bit)
            result = plane;
    }
    out[(tx * 32 + lane) * tall + ty] = result;
}

// Bins of 4 warps apart, of 16-bit words read as pairs; integer atomics without results.
__global__ void histogram_by_warp(const unsigned *in, unsigned *bins, int pairs)
{
    extern __shared__ unsigned mine[];
    int warps = blockDim.x / 32, warp = threadIdx.x / 32;
    for (int k = threadIdx.x; k < 64 * warps; k += blockDim.x)
        mine[k] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < pairs; i += gridDim.x * blockDim.x) {
        unsigned two = in[i];
        atomicAdd(&mine[warp * 64 + (two >> 10 & 63)], 1u);
        atomicAdd(&mine[warp * 64 + (two >> 26)], 1u);
    }
    __syncthreads();
    for (int b = threadIdx.x; b < 64; b += blockDim.x) {
        unsigned sum = 0;
        for (int w = 0; w < warps; w++)
            sum += mine[w * 64 + b];
        if (sum)
            atomicAdd(&bins[b], sum);
    }
}

// Powers of 6 x 6 matrices modulo a prime, in local arrays with indices that only the run knows.
__device__ __noinline__ void multiply6(const unsigned *a, const unsigned *b, unsigned *c, int n)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            unsigned long long sum = 0;
            for (int k = 0; k < n; k++)
                sum += (unsigned long long)a[i * 6 + k] * b[k * 6 + j];
            c[i * 6 + j] = sum % 65521u;
        }
}

__global__ void matrix_power(const unsigned *exponent, unsigned *trace, int size, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned base[36], result[36], scratch[36];
    for (int k = 0; k < 36; k++) {
        base[k] = (k * 37 + i) % 101;
        result[k] = k % 7 == 0;
    }
    for (unsigned e = exponent[i]; e; e >>= 1) {
        if (e & 1) {
            multiply6(result, base, scratch, size);
            for (int k = 0; k < 36; k++)
                result[k] = scratch[k];
        }
        multiply6(base, base, scratch, size);
        for (int k = 0; k < 36; k++)
            base[k] = scratch[k];
    }
    unsigned sum = 0;
    for (int k = 0; k < size; k++)
        sum += result[k * 7];
    trace[i] = sum;
}

// Quicksort of 48 numbers a thread, with a stack of ranges instead of recursion, and insertion below 8.
__global__ void quicksort_local(const short *in, short *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    short v[48];
    int stack[16], top = 0;
    for (int k = 0; k < 48; k++)
        v[k] = in[i * 48 + k];
    stack[top++] = 0 << 8 | 47;
    while (top) {
        int range = stack[--top], low = range >> 8, high = range & 255;
        if (high - low < 8) {
            for (int a = low + 1; a <= high; a++) {
                short x = v[a];
                int b = a - 1;
                for (; b >= low && v[b] > x; b--)
                    v[b + 1] = v[b];
                v[b + 1] = x;
            }
            continue;
        }
        short pivot = v[(low + high) / 2];
        int a = low, b = high;
        while (a <= b) {
            while (v[a] < pivot)
                a++;
            while (v[b] > pivot)
                b--;
            if (a <= b) {
                short x = v[a];
                v[a++] = v[b];
                v[b--] = x;
            }
        }
        // The larger part goes on the stack first, so that 16 places suffice.
        bool left = b - low > high - a;
        int first = left ? low << 8 | max(b, low) : a << 8 | high, second = left ? a << 8 | high : low << 8 | max(b, low);
        if ((first & 255) > first >> 8)
            stack[top++] = first;
        if ((second & 255) > second >> 8)
            stack[top++] = second;
    }
    for (int k = 0; k < 48; k++)
        out[i * 48 + k] = v[k];
}

// Places for queens, counted by backtracking on bit masks from a first two rows that the thread's number gives.
__global__ void queens(int *count, int size)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, first = i / size, second = i % size;
    if (i >= size * size)
        return;
    unsigned all = (1u << size) - 1, columns[12], left[12], right[12], free_places[12];
    int found = 0, depth = 0;
    unsigned a = 1u << first, b = 1u << second;
    if (!(b & (a | a << 1 | a >> 1))) {
        columns[0] = a | b;
        left[0] = (a << 1 | b) << 1;
        right[0] = (a >> 1 | b) >> 1;
        free_places[0] = all & ~(columns[0] | left[0] | right[0]);
        while (depth >= 0) {
            unsigned places = free_places[depth];
            if (!places) {
                depth--;
                continue;
            }
            unsigned place = places & -places;
            free_places[depth] = places ^ place;
            if (depth == size - 3) {
                found++;
                continue;
            }
            unsigned c = columns[depth] | place, l = (left[depth] | place) << 1, r = (right[depth] | place) >> 1;
            depth++;
            columns[depth] = c;
            left[depth] = l;
            right[depth] = r;
            free_places[depth] = all & ~(c | l | r);
        }
    }
    count[i] = found;
}

// ---------------------------------------------------------------- votes of groups of lanes, each with its own mask

template <int N> __global__ void vote(const int *x, int *out)
{
    auto tile = cooperative_groups::tiled_partition<N>(cooperative_groups::this_thread_block());
    out[threadIdx.x] = tile.ballot(x[threadIdx.x] & 1);
}
__global__ void vote_bare(const int *x, unsigned *out)
{
    unsigned mask = 0xFFu << (threadIdx.x & 24);
    out[threadIdx.x] = __ballot_sync(mask, x[threadIdx.x] & 1);
}
// Groups of lanes with equal keys, which are not neighbours.
__global__ void vote_matched(const int *x, unsigned *out)
{
    unsigned mask = __match_any_sync(0xFFFFFFFFu, x[threadIdx.x] & 3);
    out[threadIdx.x] = __ballot_sync(mask, x[threadIdx.x] & 4) + __any_sync(mask, x[threadIdx.x] > 900);
}
// A shuffle and a vote in groups that leave a loop at different times.
__global__ void vote_loop(const int *x, int *out, int n)
{
    int i = threadIdx.x, tile = i % 32 & 24, found = -1;
    unsigned mask = 0xFFu << tile;
    for (int step = 0; step < 64; step++) {
        int have = x[(i / 8 * 37 + step) % n * 8 + i % 8];
        unsigned hit = __ballot_sync(mask, have == 1) >> tile & 255, hole = __ballot_sync(mask, have == 0) >> tile & 255;
        if (hit) {
            found = step * 8 + __ffs(hit) - 1;
            break;
        }
        if (hole)
            break;
    }
    found += __shfl_down_sync(mask, found, 1, 8);
    if (i % 8 == 0)
        out[i / 8] = found;
}
// The same vote where half of the lanes take another branch.
__global__ void vote_branch(const int *x, unsigned *out)
{
    unsigned mask = 0xFu << (threadIdx.x & 28), voted = 0;
    if (threadIdx.x & 4)
        voted = __ballot_sync(mask, x[threadIdx.x] & 1) * 3;
    else
        voted = __ballot_sync(mask, x[threadIdx.x] & 2) + 5;
    out[threadIdx.x] = voted;
}
