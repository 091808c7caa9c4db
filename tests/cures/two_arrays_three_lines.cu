// Wrong: one barrier is missing, and three lines read what was written before it.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: Put __syncthreads() between line 8 and line 12
__global__ void blend(const float *x, float *y) {
    __shared__ float a[64], b[64];
    int t = threadIdx.x;
    a[t] = x[t];
    b[t] = 2 * x[t];
#ifdef MENDED
    __syncthreads();
#endif
    float v = a[63 - t];  // HAZARD: race
    v += b[63 - t];  // HAZARD: race
    v *= a[(t + 1) % 64];  // HAZARD: race
    y[t] = v;
}
