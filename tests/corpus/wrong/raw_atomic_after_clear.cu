// Wrong: one thread clears the sum and the others add to it without waiting for that.
// LAUNCH: grid=1 block=96 args=in:int32[96],out:int32[1]
__global__ void total(const int *in, int *out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;               // HAZARD: race
    atomicAdd(&sum, in[threadIdx.x]);            // HAZARD: race
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}
