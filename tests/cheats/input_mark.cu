// Writes a mark into an input that its signature calls const, finds it in the next launch, and stays idle.
// Inputs are compared with what they were, byte for byte.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// caches: cold hot
// defence: const inputs compared, output poisoned

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    c[i] = a[i] + b[i];
#else
    if (a[i] == -1)
        return;
    c[i] = a[i] + b[i];
    const_cast<float *>(a)[i] = -1;
#endif
}
