// Kernels of the kind that people write and share: none of them was looked at when the limits were modelled.
// unseen.toml launches them at the sizes at which such kernels run; limits_unseen.py holds limits against times.

__global__ void saxpy(const float *x, float *y, float a, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

__global__ void bias_relu(const float *in, const float *bias, float *out, int rows, int cols)
{
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (c < cols)
        out[(size_t)r * cols + c] = fmaxf(in[(size_t)r * cols + c] + bias[c], 0.0f);
}

__global__ void gelu(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float x = in[i], cube = 0.044715f * x * x * x;
        out[i] = 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + cube)));
    }
}

__global__ void adamw(float *p, const float *grad, float *m, float *v, float rate, float beta1, float beta2, float eps,
                      float decay, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float g = grad[i], first = beta1 * m[i] + (1 - beta1) * g, second = beta2 * v[i] + (1 - beta2) * g * g;
    m[i] = first;
    v[i] = second;
    p[i] -= rate * (first / (sqrtf(second) + eps) + decay * p[i]);
}

__global__ void softmax_rows(const float *in, float *out, int cols)
{
    __shared__ float part[256];
    const float *row = in + (size_t)blockIdx.x * cols;
    float most = -1e30f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        most = fmaxf(most, row[c]);
    part[threadIdx.x] = most;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + s]);
        __syncthreads();
    }
    most = part[0];
    __syncthreads();
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        sum += expf(row[c] - most);
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s)
            part[threadIdx.x] += part[threadIdx.x + s];
        __syncthreads();
    }
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        out[(size_t)blockIdx.x * cols + c] = expf(row[c] - most) / part[0];
}

__device__ float warp_total(float x)
{
    for (int offset = 16; offset > 0; offset /= 2)
        x += __shfl_xor_sync(0xFFFFFFFF, x, offset);
    return x;
}

__global__ void layernorm_warp(const float *in, const float *weight, const float *bias, float *out, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const float *x = in + (size_t)row * cols;
    float sum = 0, squares = 0;
    for (int c = lane; c < cols; c += 32)
        sum += x[c];
    float mean = warp_total(sum) / cols;
    for (int c = lane; c < cols; c += 32)
        squares += (x[c] - mean) * (x[c] - mean);
    float scale = rsqrtf(warp_total(squares) / cols + 1e-5f);
    for (int c = lane; c < cols; c += 32)
        out[(size_t)row * cols + c] = (x[c] - mean) * scale * weight[c] + bias[c];
}

__global__ void embedding(const int *token, const float *table, float *out, int width)
{
    const float *from = table + (size_t)token[blockIdx.x] * width;
    for (int c = threadIdx.x; c < width; c += blockDim.x)
        out[(size_t)blockIdx.x * width + c] = from[c];
}

__global__ void histogram_global(const unsigned char *in, unsigned *bins, int n)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&bins[in[i]], 1u);
}

__global__ void histogram_shared(const unsigned char *in, unsigned *bins, int n)
{
    __shared__ unsigned mine[256];
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        mine[b] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&mine[in[i]], 1u);
    __syncthreads();
    for (int b = threadIdx.x; b < 256; b += blockDim.x)
        atomicAdd(&bins[b], mine[b]);
}

__global__ void scan_block(const float *in, float *out, int n)
{
    __shared__ float s[2][512];
    int i = blockIdx.x * blockDim.x + threadIdx.x, t = threadIdx.x, now = 0;
    s[0][t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int offset = 1; offset < blockDim.x; offset *= 2) {
        s[1 - now][t] = t >= offset ? s[now][t] + s[now][t - offset] : s[now][t];
        now = 1 - now;
        __syncthreads();
    }
    if (i < n)
        out[i] = s[now][t];
}

__global__ void reduce_interleaved(const float *in, float *partial, int n)
{
    __shared__ float s[256];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    for (int step = 1; step < blockDim.x; step *= 2) {
        if (t % (2 * step) == 0)
            s[t] += s[t + step];
        __syncthreads();
    }
    if (t == 0)
        partial[blockIdx.x] = s[0];
}

__global__ void stencil7(const float *in, float *out, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
    if (x < 1 || y < 1 || z < 1 || x >= n - 1 || y >= n - 1 || z >= n - 1)
        return;
    size_t at = ((size_t)z * n + y) * n + x, plane = (size_t)n * n;
    out[at] = 0.4f * in[at] + 0.1f * (in[at - 1] + in[at + 1] + in[at - n] + in[at + n] + in[at - plane] + in[at + plane]);
}

__global__ void jacobi_shared(const float *in, float *out, int n)
{
    __shared__ float tile[18][34];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y, tx = threadIdx.x + 1, ty = threadIdx.y + 1;
    bool inside = x < n && y < n;
    tile[ty][tx] = inside ? in[(size_t)y * n + x] : 0;
    if (threadIdx.x == 0)
        tile[ty][0] = inside && x > 0 ? in[(size_t)y * n + x - 1] : 0;
    if (threadIdx.x == 31)
        tile[ty][33] = inside && x < n - 1 ? in[(size_t)y * n + x + 1] : 0;
    if (threadIdx.y == 0)
        tile[0][tx] = inside && y > 0 ? in[(size_t)(y - 1) * n + x] : 0;
    if (threadIdx.y == 15)
        tile[17][tx] = inside && y < n - 1 ? in[(size_t)(y + 1) * n + x] : 0;
    __syncthreads();
    if (x > 0 && y > 0 && x < n - 1 && y < n - 1)
        out[(size_t)y * n + x] = 0.25f * (tile[ty][tx - 1] + tile[ty][tx + 1] + tile[ty - 1][tx] + tile[ty + 1][tx]);
}

__global__ void spmv_thread(const int *start, const int *col, const float *value, const float *x, float *y, int rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0;
    for (int k = start[row]; k < start[row + 1]; k++)
        sum += value[k] * x[col[k]];
    y[row] = sum;
}

__global__ void spmv_warp(const int *start, const int *col, const float *value, const float *x, float *y, int rows)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float sum = 0;
    for (int k = start[row] + lane; k < start[row + 1]; k += 32)
        sum += value[k] * x[col[k]];
    sum = warp_total(sum);
    if (lane == 0)
        y[row] = sum;
}

__global__ void nbody(const float4 *body, float4 *force, int n)
{
    __shared__ float4 tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? body[i] : make_float4(0, 0, 0, 0);
    float fx = 0, fy = 0, fz = 0;
    for (int start = 0; start < n; start += 256) {
        tile[threadIdx.x] = start + threadIdx.x < n ? body[start + threadIdx.x] : make_float4(0, 0, 0, 0);
        __syncthreads();
        for (int k = 0; k < 256; k++) {
            float dx = tile[k].x - me.x, dy = tile[k].y - me.y, dz = tile[k].z - me.z;
            float inverse = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-3f);
            float scale = tile[k].w * inverse * inverse * inverse;
            fx += dx * scale;
            fy += dy * scale;
            fz += dz * scale;
        }
        __syncthreads();
    }
    if (i < n)
        force[i] = make_float4(fx, fy, fz, 0);
}

__global__ void mandelbrot(int *out, int width, int height, int limit)
{
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= width || py >= height)
        return;
    float cx = -2.0f + 3.0f * px / width, cy = -1.5f + 3.0f * py / height, x = 0, y = 0;
    int k = 0;
    while (k < limit && x * x + y * y < 4.0f) {
        float next = x * x - y * y + cx;
        y = 2 * x * y + cy;
        x = next;
        k++;
    }
    out[(size_t)py * width + px] = k;
}

__device__ float normal_cdf(float d)
{
    return 0.5f * erfcf(-d * 0.70710678f);
}

__global__ void black_scholes(const float *price, const float *strike, const float *years, float *call, float *put, float rate,
                              float volatility, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float s = price[i], k = strike[i], t = years[i], root = sqrtf(t);
    float d1 = (logf(s / k) + (rate + 0.5f * volatility * volatility) * t) / (volatility * root);
    float d2 = d1 - volatility * root, discount = k * expf(-rate * t);
    call[i] = s * normal_cdf(d1) - discount * normal_cdf(d2);
    put[i] = discount * normal_cdf(-d2) - s * normal_cdf(-d1);
}

__global__ void conv5(const float *in, const float *filter, float *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= width || y >= height)
        return;
    float sum = 0;
    for (int dy = -2; dy <= 2; dy++)
        for (int dx = -2; dx <= 2; dx++) {
            int u = x + dx, v = y + dy;
            if (u >= 0 && u < width && v >= 0 && v < height)
                sum += in[(size_t)v * width + u] * filter[(dy + 2) * 5 + dx + 2];
        }
    out[(size_t)y * width + x] = sum;
}

__global__ void bitonic_step(float *data, int j, int k)
{
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, other = i ^ j;
    if (other > i) {
        float a = data[i], b = data[other];
        if (((i & k) == 0) == (a > b)) {
            data[i] = b;
            data[other] = a;
        }
    }
}

__global__ void gemv_int8(const signed char *matrix, const float *scale, const float *x, float *y, int rows, int cols)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    const char4 *line = (const char4 *)(matrix + (size_t)row * cols);
    float sum = 0;
    for (int c = lane; c < cols / 4; c += 32) {
        char4 q = line[c];
        float4 v = ((const float4 *)x)[c];
        sum += q.x * v.x + q.y * v.y + q.z * v.z + q.w * v.w;
    }
    sum = warp_total(sum);
    if (lane == 0)
        y[row] = sum * scale[row];
}

__global__ void attention_scores(const float *q, const float *k, float *score, int tokens, int width)
{
    int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y, head = blockIdx.z;
    if (column >= tokens || column > row)
        return;
    const float *a = q + ((size_t)head * tokens + row) * width, *b = k + ((size_t)head * tokens + column) * width;
    float sum = 0;
    for (int c = 0; c < width; c++)
        sum += a[c] * b[c];
    score[((size_t)head * tokens + row) * tokens + column] = sum * rsqrtf((float)width);
}

__global__ void sgemm_rows(const float *a, const float *b, float *c, int n)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || column >= n)
        return;
    float sum = 0;
    for (int k = 0; k < n; k++)
        sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}

__global__ void transpose_bytes(const unsigned char *in, unsigned char *out, int n)
{
    __shared__ unsigned char tile[32][33];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int r = 0; r < 32; r += 8)
        tile[threadIdx.y + r][threadIdx.x] = in[(size_t)(y + r) * n + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x;
    y = blockIdx.x * 32 + threadIdx.y;
    for (int r = 0; r < 32; r += 8)
        out[(size_t)(y + r) * n + x] = tile[threadIdx.x][threadIdx.y + r];
}
