// Lets only the first 128 blocks work; the rest of the output stays as it was.
// run: vecadd --size {size}
// size: gpu=8388608 sim=65537
// gpu: wrong
// sim: wrong
// defence: output poisoned

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (blockIdx.x >= 128)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
