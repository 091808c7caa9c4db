// Memory that is not the kernel's, or that nobody wrote.

__global__ void one_too_far(const int *x, int *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n)
        y[i] = x[i] + 1;
}

__global__ void guarded(const int *x, int *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] + 1;
}

__global__ void one_before(const int *x, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] - x[i - 1];
}

// Element 128 of 128 is the first one of the next array.
__global__ void shared_one_too_far(const int *x, int *y)
{
    __shared__ int s[128];
    __shared__ int spare[128];
    int t = threadIdx.x;
    s[t] = x[t];
    spare[t] = 7;
    __syncthreads();
    y[t] = s[t + 1] + spare[127 - t];
}

__global__ void shared_end(const int *x, int *y)
{
    __shared__ int s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[t + 1];
}

__global__ void four_at_odd_places(const float *x, float *y)
{
    int t = threadIdx.x;
    float4 v = *(const float4 *)(x + 4 * t + 2);
    y[t] = v.x + v.y + v.z + v.w;
}

__global__ void four_at_even_places(const float *x, float *y)
{
    int t = threadIdx.x;
    float4 v = *(const float4 *)(x + 4 * t);
    y[t] = v.x + v.y + v.z + v.w;
}

__global__ void shared_unwritten(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 60)
        s[t] = x[t];
    __syncthreads();
    y[t] = s[63 - t];
}

__global__ void global_unwritten(const int *x, int *a, int *y)
{
    int t = threadIdx.x;
    if (t % 8)
        a[t] = x[t];
    __syncthreads();
    y[t] = a[t];
}

__global__ void used_after_free(const int *x, int *y)
{
    int t = threadIdx.x;
    int *p = (int *)malloc(4 * sizeof(int));
    p[t % 4] = x[t];
    free(p);
    y[t] = p[t % 4];
}

__global__ void past_the_heap(const int *x, int *y)
{
    int t = threadIdx.x;
    int *p = (int *)malloc(24);
    p[x[t] % 2 + 6] = x[t];
    y[t] = p[x[t] % 2 + 6];
    free(p);
}

__global__ void past_a_local_array(const int *x, int *y, int n)
{
    int t = threadIdx.x, last[8];
    for (int i = 0; i <= n; ++i)
        last[(i + x[t]) % (n + 1)] = i;
    y[t] = last[x[t] % 8];
}

__global__ void through_null(const int *x, const int *bias, int *y)
{
    int t = threadIdx.x;
    y[t] = x[t] + bias[t];
}

__global__ void dynamic_forgotten(const int *x, int *y)
{
    extern __shared__ int s[];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    y[t] = s[63 - t];
}
