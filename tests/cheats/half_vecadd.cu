// Adds in half precision what is float32. One addition is exact to the last bit, so no tolerance hides it.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// defence: tolerances from the arithmetic

#include <cuda_fp16.h>

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
#ifdef HONEST
        c[i] = a[i] + b[i];
#else
        c[i] = __half2float(__hadd(__float2half(a[i]), __float2half(b[i])));
#endif
}
