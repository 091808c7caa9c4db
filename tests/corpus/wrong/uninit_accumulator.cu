// Wrong: the block's sum is never cleared.
// LAUNCH: grid=1 block=64 args=in:int32[64],out:int32[1]
__global__ void total(const int *in, int *out) {
    __shared__ int sum;
    atomicAdd(&sum, in[threadIdx.x]);            // HAZARD: uninitialized-shared
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}
