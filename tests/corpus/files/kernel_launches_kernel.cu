// A kernel that launches another: refused where it does, and the other one runs from the line.
// run: -k halve_until_one -g 1 -b 1 --arg 'x=float32[64]:random' --arg n=64
// expect: refused: dynamic parallelism\): name the kernels that it launches with --step
// then: --step 'fold<<<1, 32>>>(x, 32)' --step 'fold<<<1, 16>>>(x, 16)' --arg 'x=float32[64]:random'
//      --expect 'x[:16]=x0[:16]+x0[16:32]+x0[32:48]+x0[48:]'
#include <cuda_runtime.h>

__global__ void fold(float *x, int half) {
    if (threadIdx.x < half) x[threadIdx.x] += x[threadIdx.x + half];
}

__global__ void halve_until_one(float *x, int n) {
    for (int half = n / 2; half > 0; half /= 2) {
        fold<<<1, half>>>(x, half);
        cudaDeviceSynchronize();
    }
}

int main() {
    float *x;
    cudaMalloc(&x, 64 * sizeof(float));
    halve_until_one<<<1, 1>>>(x, 64);
    return cudaDeviceSynchronize();
}
