// The library's header brings bfloat16 too.
// run: -g 'cdiv(n,64)' -b 64 --arg 'x=float32[n]:random' --arg 'y=bfloat16[n]:empty' --arg n=128
//      --expect 'y=x'
// expect: ok
#include <cublasLt.h>

static cublasLtHandle_t handle;

__global__ void to_bf16(const float *x, __nv_bfloat16 *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2bfloat16(x[i]);
}
