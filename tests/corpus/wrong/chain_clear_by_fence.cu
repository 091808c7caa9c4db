// Wrong: one block sets what all blocks then count in, and a fence makes nobody wait for it.
// LAUNCH: grid=4 block=32 args=x:int32[128],bins:int32[16]
__global__ void histogram(const int *x, int *bins) {
    if (blockIdx.x == 0 && threadIdx.x < 16)
        bins[threadIdx.x] = 20;
    __threadfence();
    __syncthreads();
    atomicAdd(&bins[x[blockIdx.x * 32 + threadIdx.x] % 16], 1);    // HAZARD: race
}
