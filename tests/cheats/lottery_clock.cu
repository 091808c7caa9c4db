// Works only where the SM's clock stands in the right half of its period of a millisecond, and is idle else.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong
// sim: none
// caches: cold hot
// defence: output poisoned, timed samples compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (clock64() >> 20 & 1)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
