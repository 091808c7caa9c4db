// Wrong: a device function's tile is filled again while others still read it.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: Put __syncthreads() between line 12 and line 16
__device__ float mirrored(float *s, float v) {
    s[threadIdx.x] = v;  // HAZARD: race
    __syncthreads();
    return s[63 - threadIdx.x];
}
__global__ void both(const float *x, float *y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    float a = mirrored(s, x[t]);
#ifdef MENDED
    __syncthreads();
#endif
    float b = mirrored(s, 2 * x[t]);
    y[t] = a + b;
}
