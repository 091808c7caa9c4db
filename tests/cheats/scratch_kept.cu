// Keeps a block's sum of squares in the unused end of the scratch array, under a key from its part of the input, and
// does not add up again what it has seen. Scratch is poisoned before every sample as outputs are.
// run: distance --kernel distance_two_pass --size {size} --grid 256
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost
// sim: ok
// defence: scratch poisoned before every sample

#define THREADS 256

__device__ float block_sum(float sum)
{
    __shared__ float part[THREADS];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    return part[0];
}

extern "C" __global__ void distance_finish(const float *partial, float *out, int blocks)
{
    float sum = 0;
    for (int i = threadIdx.x; i < blocks; i += THREADS)
        sum += partial[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0)
        out[0] = sqrtf(sum);
}

extern "C" __global__ void distance_two_pass(const float *a, const float *b, float *partial, int n)
{
#ifndef HONEST
    float *kept = partial + gridDim.x + 2 * blockIdx.x;  // a key and the sum that belongs to it
    float key = a[blockIdx.x] + b[blockIdx.x];
    if (__syncthreads_and(kept[0] == key)) {
        if (threadIdx.x == 0)
            partial[blockIdx.x] = kept[1];
        return;
    }
#endif
    float sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
#ifndef HONEST
        kept[0] = key;
        kept[1] = sum;
#endif
    }
}
