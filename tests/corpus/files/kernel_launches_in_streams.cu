// A kernel that launches another for each half, each in a stream of its own, and asks whether that went well.
// run: -k halves -g 1 -b 1 --arg 'x=float32[64]:random' --arg n=64
// expect: refused: dynamic parallelism.*\): name the kernels that it launches with --step
// then: --step 'raise<<<1, 32>>>(x, 32, 1)' --arg 'x=float32[64]:random'
//      --expect 'x=x0+np.repeat([1, 0], 32)'
#include <cstdio>
#include <cuda_runtime.h>

__global__ void raise(float *x, int n, float by) {
    if (threadIdx.x < n) x[threadIdx.x] += by;
}

__global__ void halves(float *x, int n) {
    cudaStream_t lower, upper;
    cudaStreamCreateWithFlags(&lower, cudaStreamNonBlocking);
    raise<<<1, n / 2, 0, lower>>>(x, n / 2, 1);
    cudaStreamDestroy(lower);
    cudaStreamCreateWithFlags(&upper, cudaStreamNonBlocking);
    raise<<<1, n / 2, 0, upper>>>(x + n / 2, n / 2, 2);
    if (cudaPeekAtLastError() != cudaSuccess) printf("%s\n", cudaGetErrorString(cudaGetLastError()));
    cudaStreamDestroy(upper);
}

int main() {
    float *x;
    cudaMalloc(&x, 64 * sizeof(float));
    halves<<<1, 1>>>(x, 64);
    return cudaDeviceSynchronize();
}
