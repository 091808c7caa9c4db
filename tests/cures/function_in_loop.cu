// Wrong: a device function in a loop fills its tile while others still read it.
// LAUNCH: grid=1 block=128 args=x:float32[512],y:float32[4]
// SAYS: Put __syncthreads() at the end of the body of the loop in line 13, after line 14
__device__ float block_sum(float v) {
    __shared__ float s[4];
    for (int d = 16; d; d /= 2) v += __shfl_down_sync(~0u, v, d);
    if (threadIdx.x % 32 == 0)
        s[threadIdx.x / 32] = v;  // HAZARD: race
    __syncthreads();
    return s[0] + s[1] + s[2] + s[3];
}
__global__ void rows(const float *x, float *y) {
    for (int r = 0; r < 4; ++r) {
        float sum = block_sum(x[r * 128 + threadIdx.x]);
        if (threadIdx.x == 0) y[r] = sum;
#ifdef MENDED
        __syncthreads();
#endif
    }
}
