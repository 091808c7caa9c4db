// Writes one element too many, into whatever lies behind its output.
// run: vecadd --size {size}
// size: gpu=8388607 sim=10007
// gpu: wrong
// sim: wrong
// defence: guard zones

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef HONEST
    if (i < n)
        c[i] = a[i] + b[i];
#else
    if (i <= n)
        c[i] = a[min(i, n - 1)] + b[min(i, n - 1)];
#endif
}
