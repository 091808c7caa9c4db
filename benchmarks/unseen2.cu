// More kernels of the kind that people write and share, after unseen.cu: what the limits promise for them was written
// down before any of them had run on a card. unseen2.toml launches them at the sizes at which such kernels run.

#include <cuda_fp16.h>
#include <mma.h>

// Rotary embedding of queries, one pair of halves of a head a thread.
__global__ void rope(__half *q, int tokens, int heads, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, half_width = width / 2;
    if (i >= tokens * heads * half_width)
        return;
    int pair = i % half_width, head = i / half_width % heads, token = i / (half_width * heads);
    float angle = token * powf(10000.0f, -2.0f * pair / width), s, c;
    sincosf(angle, &s, &c);
    __half *row = q + ((size_t)token * heads + head) * width;
    float a = __half2float(row[pair]), b = __half2float(row[pair + half_width]);
    row[pair] = __float2half(a * c - b * s);
    row[pair + half_width] = __float2half(a * s + b * c);
}

__global__ void rmsnorm(const __half2 *in, const __half2 *weight, __half2 *out, int pairs)
{
    __shared__ float part[32];
    const __half2 *row = in + (size_t)blockIdx.x * pairs;
    float sum = 0;
    for (int c = threadIdx.x; c < pairs; c += blockDim.x) {
        float2 x = __half22float2(row[c]);
        sum += x.x * x.x + x.y * x.y;
    }
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xFFFFFFFF, sum, offset);
    if (threadIdx.x % 32 == 0)
        part[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int offset = 16; offset > 0; offset /= 2)
            sum += __shfl_down_sync(0xFFFFFFFF, sum, offset);
        if (threadIdx.x == 0)
            part[0] = rsqrtf(sum / (2 * pairs) + 1e-6f);
    }
    __syncthreads();
    float scale = part[0];
    for (int c = threadIdx.x; c < pairs; c += blockDim.x) {
        float2 x = __half22float2(row[c]), w = __half22float2(weight[c]);
        out[(size_t)blockIdx.x * pairs + c] = __floats2half2_rn(x.x * scale * w.x, x.y * scale * w.y);
    }
}

// Loss of a row of logits: the largest and the sum of exponentials in one pass.
__global__ void cross_entropy(const float *logits, const int *label, float *loss, int classes)
{
    __shared__ float most_of[256], sum_of[256];
    const float *row = logits + (size_t)blockIdx.x * classes;
    float most = -1e30f, sum = 0;
    for (int c = threadIdx.x; c < classes; c += blockDim.x) {
        float x = row[c];
        if (x > most) {
            sum = sum * expf(most - x);
            most = x;
        }
        sum += expf(x - most);
    }
    most_of[threadIdx.x] = most;
    sum_of[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) {
            float other = most_of[threadIdx.x + s], both = fmaxf(other, most_of[threadIdx.x]);
            sum_of[threadIdx.x] = sum_of[threadIdx.x] * expf(most_of[threadIdx.x] - both)
                                  + sum_of[threadIdx.x + s] * expf(other - both);
            most_of[threadIdx.x] = both;
        }
        __syncthreads();
    }
    if (threadIdx.x == 0)
        loss[blockIdx.x] = logf(sum_of[0]) + most_of[0] - row[label[blockIdx.x]];
}

__global__ void argmax_rows(const float *in, int *out, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32, at = 0;
    if (row >= rows)
        return;
    float most = -1e30f;
    for (int c = lane; c < cols; c += 32)
        if (in[(size_t)row * cols + c] > most) {
            most = in[(size_t)row * cols + c];
            at = c;
        }
    for (int offset = 16; offset > 0; offset /= 2) {
        float other = __shfl_down_sync(0xFFFFFFFF, most, offset);
        int place = __shfl_down_sync(0xFFFFFFFF, at, offset);
        if (other > most || (other == most && place < at)) {
            most = other;
            at = place;
        }
    }
    if (lane == 0)
        out[row] = at;
}

__global__ void maxpool2(const float *in, float *out, int planes, int height, int width)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, w = width / 2, h = height / 2;
    if (i >= planes * h * w)
        return;
    int x = i % w, y = i / w % h, plane = i / (w * h);
    const float *from = in + ((size_t)plane * height + 2 * y) * width + 2 * x;
    out[i] = fmaxf(fmaxf(from[0], from[1]), fmaxf(from[width], from[width + 1]));
}

__global__ void depthwise3(const float *in, const float *filter, float *out, int channels, int height, int width)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, plane = blockIdx.z;
    if (x >= width || y >= height)
        return;
    const float *from = in + (size_t)plane * height * width, *f = filter + plane % channels * 9;
    float sum = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (x + dx >= 0 && x + dx < width && y + dy >= 0 && y + dy < height)
                sum += from[(y + dy) * width + x + dx] * f[(dy + 1) * 3 + dx + 1];
    out[((size_t)plane * height + y) * width + x] = sum;
}

// Mean and variance of each channel of NCHW, a block a channel.
__global__ void batch_statistics(const float *in, float *mean, float *variance, int images, int channels, int pixels)
{
    __shared__ float sums[512], squares[512];
    float sum = 0, square = 0;
    for (int n = 0; n < images; n++)
        for (int p = threadIdx.x; p < pixels; p += blockDim.x) {
            float x = in[((size_t)n * channels + blockIdx.x) * pixels + p];
            sum += x;
            square += x * x;
        }
    sums[threadIdx.x] = sum;
    squares[threadIdx.x] = square;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) {
            sums[threadIdx.x] += sums[threadIdx.x + s];
            squares[threadIdx.x] += squares[threadIdx.x + s];
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        float m = sums[0] / (images * pixels);
        mean[blockIdx.x] = m;
        variance[blockIdx.x] = squares[0] / (images * pixels) - m * m;
    }
}

// One pass of a Fourier transform of radix 2, from one array into the other.
__global__ void fft_pass(const float2 *in, float2 *out, int n, int done)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n / 2)
        return;
    int k = i & (done - 1);
    float s, c;
    sincosf(-3.14159265f * k / done, &s, &c);
    float2 a = in[i], b = in[i + n / 2];
    float2 t = make_float2(b.x * c - b.y * s, b.x * s + b.y * c);
    int to = ((i - k) << 1) + k;
    out[to] = make_float2(a.x + t.x, a.y + t.y);
    out[to + done] = make_float2(a.x - t.x, a.y - t.y);
}

// Lattice Boltzmann, D2Q9, pulled and collided, periodic.
__global__ void lbm(const float *in, float *out, int width, int height, float omega)
{
    const int ex[9] = {0, 1, 0, -1, 0, 1, -1, -1, 1}, ey[9] = {0, 0, 1, 0, -1, 1, 1, -1, -1};
    const float w[9] = {4 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 9.f, 1 / 36.f, 1 / 36.f, 1 / 36.f, 1 / 36.f};
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, cells = width * height;
    if (x >= width || y >= height)
        return;
    float f[9], density = 0, ux = 0, uy = 0;
#pragma unroll
    for (int q = 0; q < 9; q++) {
        int fx = (x - ex[q] + width) % width, fy = (y - ey[q] + height) % height;
        f[q] = in[q * cells + fy * width + fx];
        density += f[q];
        ux += ex[q] * f[q];
        uy += ey[q] * f[q];
    }
    ux /= density;
    uy /= density;
#pragma unroll
    for (int q = 0; q < 9; q++) {
        float eu = 3 * (ex[q] * ux + ey[q] * uy);
        float balance = w[q] * density * (1 + eu + 0.5f * eu * eu - 1.5f * (ux * ux + uy * uy));
        out[q * cells + y * width + x] = f[q] + omega * (balance - f[q]);
    }
}

__global__ void heat3(const double *in, double *out, int n, double rate)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x < 1 || x >= n - 1 || y < 1 || y >= n - 1)
        return;
    size_t plane = (size_t)n * n, at = (size_t)y * n + x + plane;
    double below = in[at - plane], here = in[at];
    for (int z = 1; z < n - 1; z++, at += plane) {
        double above = in[at + plane];
        out[at] = here + rate * (above + below + in[at - 1] + in[at + 1] + in[at - n] + in[at + n] - 6 * here);
        below = here;
        here = above;
    }
}

__global__ void dgemm_tiled(const double *a, const double *b, double *c, int n)
{
    __shared__ double left[16][16], right[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, col = blockIdx.x * 16 + x;
    double sum = 0;
    for (int tile = 0; tile < n; tile += 16) {
        left[y][x] = a[(size_t)row * n + tile + x];
        right[y][x] = b[(size_t)(tile + y) * n + col];
        __syncthreads();
        for (int k = 0; k < 16; k++)
            sum += left[y][k] * right[k][x];
        __syncthreads();
    }
    c[(size_t)row * n + col] = sum;
}

// A warp a tile of 16 x 16, straight from global memory.
__global__ void hgemm_wmma(const __half *a, const __half *b, float *c, int n)
{
    using namespace nvcuda;
    int tile_row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, tile_col = blockIdx.y * blockDim.y + threadIdx.y;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> left;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> right;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int k = 0; k < n; k += 16) {
        wmma::load_matrix_sync(left, a + (size_t)tile_row * 16 * n + k, n);
        wmma::load_matrix_sync(right, b + (size_t)k * n + tile_col * 16, n);
        wmma::mma_sync(sum, left, right, sum);
    }
    wmma::store_matrix_sync(c + (size_t)tile_row * 16 * n + tile_col * 16, sum, n, wmma::mem_row_major);
}

__global__ void sobel(const unsigned char *in, unsigned char *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= width - 1 || y >= height - 1)
        return;
    const unsigned char *p = in + y * width + x;
    int gx = p[1 - width] + 2 * p[1] + p[1 + width] - p[-1 - width] - 2 * p[-1] - p[-1 + width];
    int gy = p[width - 1] + 2 * p[width] + p[width + 1] - p[-width - 1] - 2 * p[-width] - p[-width + 1];
    out[y * width + x] = (unsigned char)min(255, (int)sqrtf((float)(gx * gx + gy * gy)));
}

__global__ void rgb_to_yuv(const uchar3 *in, unsigned char *luma, unsigned char *u, unsigned char *v, int pixels)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= pixels)
        return;
    uchar3 p = in[i];
    luma[i] = (66 * p.x + 129 * p.y + 25 * p.z + 4224) >> 8;
    u[i] = (-38 * p.x - 74 * p.y + 112 * p.z + 32896) >> 8;
    v[i] = (112 * p.x - 94 * p.y - 18 * p.z + 32896) >> 8;
}

__device__ unsigned next_random(unsigned &state)
{
    state ^= state << 13;
    state ^= state >> 17;
    state ^= state << 5;
    return state;
}

// An Asian option: the mean payoff of a path a thread, by Box and Muller.
__global__ void asian_option(float *payoff, int paths, int steps, float drift, float spread, float strike)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= paths)
        return;
    unsigned state = 2654435761u * (i + 1);
    float price = 100, sum = 0;
    for (int k = 0; k < steps; k++) {
        float a = (next_random(state) + 1.0f) * 2.3283064e-10f, b = next_random(state) * 2.3283064e-10f;
        float normal = sqrtf(-2 * logf(a)) * cosf(6.2831853f * b);
        price *= expf(drift + spread * normal);
        sum += price;
    }
    payoff[i] = fmaxf(sum / steps - strike, 0.0f);
}

// Keys sought in a table of open addressing; a place whose highest bit is set is free.
__global__ void hash_find(const unsigned *table, const unsigned *key, unsigned *at, int n, unsigned mask)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned wanted = key[i], place = wanted * 2654435769u & mask;
    for (int tries = 0; tries < 64 && table[place] != wanted && table[place] < 0x80000000u; tries++)
        place = (place + 1) & mask;
    at[i] = place;
}

// What each vertex hands to those that it links to.
__global__ void pagerank_push(const int *start, const int *to, const float *rank, float *next, int vertices)
{
    int v = blockIdx.x * blockDim.x + threadIdx.x;
    if (v >= vertices)
        return;
    int first = start[v], last = start[v + 1];
    float share = 0.85f * rank[v] / (last - first);
    for (int k = first; k < last; k++)
        atomicAdd(&next[to[k]], share);
}

// The nearest of 64 centres of 16 coordinates; the points lie coordinate by coordinate.
__global__ void kmeans_assign(const float *points, const float *centres, int *nearest, int n)
{
    __shared__ float c[64 * 16];
    for (int k = threadIdx.x; k < 64 * 16; k += blockDim.x)
        c[k] = centres[k];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x, best = 0;
    if (i >= n)
        return;
    float p[16], least = 1e30f;
    for (int d = 0; d < 16; d++)
        p[d] = points[(size_t)d * n + i];
    for (int k = 0; k < 64; k++) {
        float sum = 0;
        for (int d = 0; d < 16; d++)
            sum += (p[d] - c[k * 16 + d]) * (p[d] - c[k * 16 + d]);
        if (sum < least) {
            least = sum;
            best = k;
        }
    }
    nearest[i] = best;
}

// A row of activations to bytes by its largest.
__global__ void quantise_rows(const float *in, signed char *out, float *scale, int cols)
{
    __shared__ float part[256];
    const float *row = in + (size_t)blockIdx.x * cols;
    float most = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        most = fmaxf(most, fabsf(row[c]));
    part[threadIdx.x] = most;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    float by = 127 / part[0];
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        out[(size_t)blockIdx.x * cols + c] = (signed char)__float2int_rn(row[c] * by);
    if (threadIdx.x == 0)
        scale[blockIdx.x] = part[0] / 127;
}

__global__ void floyd_step(int *distance, int n, int k)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= n || x == k || y == k)
        return;
    int through = distance[(size_t)y * n + k] + distance[(size_t)k * n + x];
    if (through < distance[(size_t)y * n + x])
        distance[(size_t)y * n + x] = through;
}

__global__ void life(const unsigned char *in, unsigned char *out, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n)
        return;
    int left = (x + n - 1) % n, right = (x + 1) % n, up = (y + n - 1) % n, down = (y + 1) % n;
    int alive = in[up * n + left] + in[up * n + x] + in[up * n + right] + in[y * n + left] + in[y * n + right]
                + in[down * n + left] + in[down * n + x] + in[down * n + right];
    out[y * n + x] = alive == 3 || (alive == 2 && in[y * n + x]);
}

__global__ void collatz(int *steps, int first, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    unsigned long long x = first + i;
    int k = 0;
    for (; x != 1; k++)
        x = x % 2 ? 3 * x + 1 : x / 2;
    steps[i] = k;
}

// The last layers of a small net: a row of halves a warp, 16 bytes a lane.
__global__ void gemv_half(const __half *matrix, const __half *x, float *y, int rows, int cols)
{
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float4 *from = (const float4 *)(matrix + (size_t)row * cols), *with = (const float4 *)x;
    float sum = 0;
    for (int c = lane; c < cols / 8; c += 32) {
        float4 m = from[c], v = with[c];
        const __half2 *a = (const __half2 *)&m, *b = (const __half2 *)&v;
        for (int k = 0; k < 4; k++) {
            float2 p = __half22float2(a[k]), q = __half22float2(b[k]);
            sum += p.x * q.x + p.y * q.y;
        }
    }
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_down_sync(0xFFFFFFFF, sum, offset);
    if (lane == 0)
        y[row] = sum;
}

// A batch of probabilities as a classifier ends with: a warp a row, in place.
__global__ void softmax_small(float *x, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float *mine = x + (size_t)row * cols, most = -1e30f, sum = 0;
    for (int c = lane; c < cols; c += 32)
        most = fmaxf(most, mine[c]);
    for (int offset = 16; offset > 0; offset /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, offset));
    for (int c = lane; c < cols; c += 32)
        sum += mine[c] = expf(mine[c] - most);
    for (int offset = 16; offset > 0; offset /= 2)
        sum += __shfl_xor_sync(0xFFFFFFFF, sum, offset);
    for (int c = lane; c < cols; c += 32)
        mine[c] /= sum;
}
