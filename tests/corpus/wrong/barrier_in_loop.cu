// Wrong: odd threads pass the loop, and so its barrier, once more than their even neighbours.
// LAUNCH: grid=1 block=64 args=out:int32[64]
__global__ void rounds(int *out) {
    int t = threadIdx.x, sum = 0;
#pragma unroll 1
    for (int k = 0; k <= t % 2; k++) {
        sum += k + 1;
        __syncthreads();                         // HAZARD: divergent-barrier
    }
    __syncthreads();                             // HAZARD: divergent-barrier
    out[t] = sum;
}
