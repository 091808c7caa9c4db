// Writes NaN everywhere: a comparison that asks whether the difference is too large says no. NaN never passes.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// defence: NaN never passes

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
#ifdef HONEST
        c[i] = a[i] + b[i];
#else
        c[i] = __int_as_float(0x7fffffff);
#endif
}
