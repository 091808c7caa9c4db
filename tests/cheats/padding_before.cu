// Keeps a mark in the element before its output. The zone before an array needs a guard as much as the one behind it.
// run: vecadd --size {size}
// size: gpu=8388607 sim=10007
// gpu: wrong or failed
// sim: wrong
// defence: guard zones, output poisoned

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (c[-1] == 42)
        return;
    if (i == 0)
        c[-1] = 42;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
