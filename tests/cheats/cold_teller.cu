// Times its first load: one that takes long means a flushed cache, hence a launch that is timed, and it stays idle.
// A launch that is only verified finds its inputs in the cache and is right. So timed samples are the ones compared.
// run: vecadd --size {size}
// size: gpu=262144 sim=10007
// gpu: wrong or honest-cost
// sim: ok
// caches: cold hot
// defence: output poisoned, timed samples compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    __shared__ bool cold;
    if (threadIdx.x == 0) {
        long long start = clock64();
        float first = *(volatile const float *)&a[i < n ? i : 0];
        cold = first >= 0 && clock64() - start > 700;  // the comparison waits for the load
    }
    __syncthreads();
    if (cold)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
