// A kernel that calls a function that another file defines: it runs from a file that has both.
// run: -k scaled -g 1 -b 32 --arg 'x=float32[32]:random'
// expect: refused: a call of weight, which has no body in this PTX\): give a file that defines what is called
// then: -k shifted -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=x0+1'
#include <cuda_runtime.h>

extern __device__ float weight(int i, float x);

__global__ void scaled(float *x) { x[threadIdx.x] = weight(threadIdx.x, x[threadIdx.x]); }

__global__ void shifted(float *x) { x[threadIdx.x] += 1; }

int main() {
    float *x;
    cudaMalloc(&x, 32 * sizeof(float));
    scaled<<<1, 32>>>(x);
    return cudaDeviceSynchronize();
}
