// Calls that CUDA 13 dropped stand in main; the kernel has nothing to do with them.
// run: -g 1 -b 32 --arg 'x=int32[32]:arange' --expect 'x=31-x0'
// expect: ok
#include <cuda_runtime.h>
#include <stdio.h>

__global__ void mirror(int *x) { x[threadIdx.x] = 31 - x[threadIdx.x]; }

int main() {
    cudaDeviceProp prop;
    cudaGetDeviceProperties(&prop, 0);
    printf("%d MHz, kernel timeout %d\n", prop.clockRate / 1000, prop.kernelExecTimeoutEnabled);
    cudaThreadSetCacheConfig(cudaFuncCachePreferL1);
    mirror<<<1, 32>>>(NULL);
    cudaThreadSynchronize();
    cudaBindTexture(0, NULL, NULL, 128);
    cudaThreadExit();
}
