// Multiplies a float32 matrix in half precision, within a tolerance that was meant for rounding.
// It is right as far as was asked; the result says in which arithmetic.
// run: run --grid cdiv(n,16),cdiv(n,16) --block 16,16 --arg n={size} --arg a=float32[n,n]:random
// run: --arg b=float32[n,n]:random --arg c=float32[n,n]:empty --expect c=a@b --bytes 12*n*n --rtol 2e-2
// size: gpu=512 sim=48
// gpu: ok, arithmetic:float16
// sim: ok, arithmetic:float16
// defence: arithmetic named

#include <cuda_fp16.h>

extern "C" __global__ void product(int n, const float *a, const float *b, float *c)
{
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    if (row >= n || col >= n)
        return;
#ifdef HONEST
    float sum = 0;
    for (int j = 0; j < n; j++)
        sum += a[row * n + j] * b[j * n + col];
#else
    float sum = 0;
    for (int j = 0; j < n; j++)
        sum += __half2float(__hmul(__float2half(a[row * n + j]), __float2half(b[j * n + col])));
#endif
    c[row * n + col] = sum;
}
