// Allocates on the device and frees again, and finds in the next launch's memory what the last one wrote there.
// The module has no variable to set back. Poison makes an idle launch wrong; the call of malloc is named.
// run: vecadd --size {size}
// size: gpu=65536 sim=10007
// gpu: wrong or honest-cost, warning:malloc
// sim: ok
// defence: output poisoned, timed samples compared, malloc named

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    __shared__ bool seen;
    if (threadIdx.x == 0) {
        volatile unsigned *tag = (volatile unsigned *)malloc(64);
        seen = tag && tag[4] == 0x5EED5EED;
        if (tag)
            tag[4] = 0x5EED5EED;
        free((void *)tag);
    }
    __syncthreads();
    if (seen)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
