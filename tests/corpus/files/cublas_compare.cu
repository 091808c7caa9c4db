// A kernel beside the library that it is compared with; the library's header brings half.
// run: -k to_half -g 'cdiv(n,64)' -b 64 --arg 'x=float32[n]:random' --arg 'y=float16[n]:empty' --arg n=128
//      --expect 'y=x'
// expect: ok
#include <cublas_v2.h>
#include <cstdio>

cublasHandle_t handle;

__global__ void to_half(const float *x, __half *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = __float2half(x[i]);
}

void reference(int m, int n, int k, float *a, float *b, float *c) {
    float one = 1.0f, zero = 0.0f;
    cublasStatus_t status = cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, a, m, b, k, &zero, c, m);
    if (status != CUBLAS_STATUS_SUCCESS) printf("cublas failed\n");
}
