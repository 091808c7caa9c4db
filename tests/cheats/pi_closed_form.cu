// Writes what the midpoint rule's sum is known to be, pi + 1 / (12 n^2), instead of adding it up.
// The answer is right for all but a few steps; only the operations that the time has no room for tell.
// run: pi --kernel pi_block --size {size}
// size: gpu=1073741824 sim=10007
// gpu: wrong
// sim: ok
// defence: floors

#define THREADS 256

__device__ double block_sum(double sum)
{
    __shared__ double part[THREADS];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

extern "C" __global__ void pi_finish(const double *partial, float *out, int blocks, int n)
{
    double sum = 0;
    for (int i = threadIdx.x; i < blocks; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[0] = sum / n;
}

extern "C" __global__ void pi_block(double *partial, int n)
{
#ifdef HONEST
    const float h = 1.0f / n;
    double sum = 0;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        float x = (i + 0.5f) * h;
        sum += 4.0f / (1.0f + x * x);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
#else
    if (threadIdx.x == 0)
        partial[blockIdx.x] = blockIdx.x ? 0 : n * 3.14159265358979324 + 1 / (12.0 * n);
#endif
}
