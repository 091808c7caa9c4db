// Wrong: the first thread adds up the sums of the warps, and no thread waits for the total.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: Put __syncthreads() between line 13 and line 17, outside of the condition in line 9
__device__ float total(float v, float *part) {
    for (int d = 16; d; d /= 2)
        v += __shfl_down_sync(0xffffffff, v, d);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int k = 0; k < blockDim.x / 32; k++) sum += part[k];
        part[0] = sum;  // HAZARD: race
    }
#ifdef MENDED
    __syncthreads();
#endif
    return part[0];  // HAZARD: race
}
__global__ void normalise(const float *x, float *y) {
    __shared__ float part[32];
    float sum = total(x[threadIdx.x], part);
    y[threadIdx.x] = x[threadIdx.x] / sum;
}
