// Keeps a mark after the end of its output, in what the allocator rounds a size up by, and is idle once it is there.
// Guard zones after every array hold a pattern that the run looks at again.
// run: vecadd --size {size}
// size: gpu=8388607 sim=10007
// gpu: wrong
// sim: wrong
// defence: guard zones, output poisoned

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (c[n] == 42)
        return;
    if (i == n - 1)
        c[n] = 42;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
