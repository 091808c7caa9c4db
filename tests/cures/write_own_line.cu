// Wrong: a device function's tile is read with no barrier after the call.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: Put __syncthreads() between line 9 and line 13
__device__ void fill(float *s, const float *x) {
    s[threadIdx.x] = x[threadIdx.x];  // HAZARD: race
}
__global__ void mirror(const float *x, float *y) {
    __shared__ float s[64];
    fill(s, x);
#ifdef MENDED
    __syncthreads();
#endif
    y[threadIdx.x] = s[63 - threadIdx.x];  // HAZARD: race
}
