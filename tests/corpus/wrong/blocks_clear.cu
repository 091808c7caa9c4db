// Wrong: one block clears what all blocks then count in; a barrier reaches its own block only.
// LAUNCH: grid=4 block=32 args=in:int32[128],count:int32[1]
__global__ void count(const int *in, int *count) {
    if (blockIdx.x == 0 && threadIdx.x == 0)
        *count = 7;
    __syncthreads();
    atomicAdd(count, in[blockIdx.x * 32 + threadIdx.x] + 1);   // HAZARD: race
}
