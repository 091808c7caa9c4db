// Wrong: the loop has a barrier after the broadcast's write and none before the next one.
// LAUNCH: grid=1 block=64 args=in:float32[8],out:float32[64]
__global__ void broadcast(const float *in, float *out) {
    __shared__ float value;
    float sum = 0;
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        if (threadIdx.x == 0) value = in[k];     // HAZARD: race
        __syncthreads();
        sum += value * threadIdx.x;              // HAZARD: race
    }
    out[threadIdx.x] = sum;
}
