// A sum over a block without the barriers of its turns, and a store past the end.
__global__ void total(const float *x, float *sum)
{
    __shared__ float part[128];
    part[threadIdx.x] = x[threadIdx.x];
    for (int step = 64; step > 0; step /= 2)
        if (threadIdx.x < step)
            part[threadIdx.x] += part[threadIdx.x + step];
    if (threadIdx.x == 0)
        sum[0] = part[0];
}

__global__ void beyond(int n, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = i < n ? 1.0f : 0.0f;
}
