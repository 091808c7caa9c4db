// Writes the first half of the output and trusts that the second still holds what another kernel left there.
// Poisoned memory is not right, so it is wrong at the first look.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// defence: output poisoned

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
#ifdef HONEST
    int end = n;
#else
    int end = n / 2;
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < end)
        c[i] = a[i] + b[i];
}
