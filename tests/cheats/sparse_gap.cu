// Leaves out one element of every million, in the hope that only some of the output is compared. All of it is.
// run: vecadd --size {size}
// size: gpu=8388608 sim=1048576
// gpu: wrong
// sim: wrong
// defence: the whole output compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (i % 1000000 == 999999)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
