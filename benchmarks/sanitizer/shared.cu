// Races in a block's shared memory.

__global__ void tile_unwaited(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    y[t] = s[127 - t];
}

__global__ void tile_waited(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[127 - t];
}

// The next tile may be stored while others still read this one.
__global__ void tile_refilled(const int *x, int *y, int tiles)
{
    __shared__ int s[128];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i < tiles; ++i) {
        s[t] = x[i * 128 + t];
        __syncthreads();
        sum += s[127 - t];
    }
    y[t] = sum;
}

__global__ void two_tiles_in_turn(const int *x, int *y, int tiles)
{
    __shared__ int s[2][128];
    int t = threadIdx.x, sum = 0;
    for (int i = 0; i < tiles; ++i) {
        s[i % 2][t] = x[i * 128 + t];
        __syncthreads();
        sum += s[i % 2][127 - t];
    }
    y[t] = sum;
}

__global__ void warp_in_step(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    s[t + 32] = x[t + 32];
    s[t] += s[t + 32];
    s[t] += s[t + 16];
    s[t] += s[t + 8];
    s[t] += s[t + 4];
    if (t == 0)
        *y = s[0] + s[1] + s[2] + s[3];
}

__global__ void warp_by_syncwarp(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncwarp();
    for (int k = 16; k > 0; k /= 2) {
        if (t < k)
            s[t] += s[t + k];
        __syncwarp();
    }
    if (t == 0)
        *y = s[0];
}

__global__ void stencil_in_place(const int *x, int *y)
{
    __shared__ int s[130];
    int t = threadIdx.x;
    s[t + 1] = x[t];
    if (t == 0)
        s[0] = s[129] = 0;
    __syncthreads();
    s[t + 1] = s[t] + s[t + 1] + s[t + 2];
    __syncthreads();
    y[t] = s[t + 1];
}

__global__ void stencil_by_register(const int *x, int *y)
{
    __shared__ int s[130];
    int t = threadIdx.x;
    s[t + 1] = x[t];
    if (t == 0)
        s[0] = s[129] = 0;
    __syncthreads();
    int sum = s[t] + s[t + 1] + s[t + 2];
    __syncthreads();
    s[t + 1] = sum;
    __syncthreads();
    y[t] = s[128 - t];
}

// Both arrays begin at byte 0.
__global__ void two_extern_arrays(const int *x, float *y)
{
    extern __shared__ int keys[];
    extern __shared__ float weights[];
    int t = threadIdx.x;
    keys[t] = x[t];
    weights[t] = 0.5f * x[63 - t];
    __syncthreads();
    y[t] = keys[63 - t] * weights[t];
}

__global__ void extern_array_halved(const int *x, float *y)
{
    extern __shared__ int keys[];
    float *weights = (float *)(keys + 64);
    int t = threadIdx.x;
    keys[t] = x[t];
    weights[t] = 0.5f * x[63 - t];
    __syncthreads();
    y[t] = keys[63 - t] * weights[t];
}

__global__ void bins_by_increment(const int *x, int *y)
{
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8)
        bins[t] = 0;
    __syncthreads();
    bins[x[t] % 8] += 1;
    __syncthreads();
    if (t < 8)
        y[t] = bins[t];
}

__global__ void bins_by_atomics(const int *x, int *y)
{
    __shared__ int bins[8];
    int t = threadIdx.x;
    if (t < 8)
        bins[t] = 0;
    __syncthreads();
    atomicAdd(&bins[x[t] % 8], 1);
    __syncthreads();
    if (t < 8)
        y[t] = bins[t];
}

// Thread 0 tells all others where to begin, and nobody waits.
__global__ void told_by_one(const int *x, int *y)
{
    __shared__ int start;
    int t = threadIdx.x;
    if (t == 0)
        start = x[0] % 64;
    y[t] = x[(start + t) % 128];
}
