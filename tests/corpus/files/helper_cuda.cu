// A sample: checkCudaErrors, command line, timers, all of headers that are not there.
// run: -g '4' -b 64 --arg 'in=float32[256]:random' --arg 'out=float32[256]:empty' --expect 'out=in*0+in'
// expect: ok
#include <assert.h>
#include <cuda_runtime.h>
#include <helper_cuda.h>
#include <helper_functions.h>

__global__ void copy(const float *in, float *out) {
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}

static StopWatchInterface *timer = NULL;

int main(int argc, char **argv) {
    int device = findCudaDevice(argc, (const char **)argv);
    cudaDeviceProp properties;
    checkCudaErrors(cudaGetDeviceProperties(&properties, device));
    sdkCreateTimer(&timer);
    sdkStartTimer(&timer);
    checkCudaErrors(cudaDeviceSynchronize());
    sdkStopTimer(&timer);
    printf("%s: %f ms\n", properties.name, sdkGetTimerValue(&timer));
    exit(EXIT_SUCCESS);
}
