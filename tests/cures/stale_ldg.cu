// Wrong: what the kernel wrote is read through the read-only cache.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: use a plain load, or read it in another launch
__global__ void twice(float *x, float *y) {
    int t = threadIdx.x;
    x[t] = 2 * x[t];
    __syncthreads();
#ifdef MENDED
    y[t] = x[63 - t];
#else
    y[t] = __ldg(&x[63 - t]);  // HAZARD: stale-read
#endif
}
