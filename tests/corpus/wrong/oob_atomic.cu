// Wrong: values run to 15 and the histogram has 12 bins.
// LAUNCH: grid=4 block=64 args=in:int32[256],bins:int32[12]
__global__ void histogram(const int *in, int *bins) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(&bins[in[i]], 1);                  // HAZARD: out-of-bounds
}
