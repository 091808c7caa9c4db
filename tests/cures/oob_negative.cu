// Wrong: the first thread reads before the start.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: before the start of 'x' (64 elements)
__global__ void difference(const float *x, float *y) {
    int i = threadIdx.x;
#ifdef MENDED
    y[i] = i > 0 ? x[i] - x[i - 1] : 0;
#else
    y[i] = x[i] - x[i - 1];  // HAZARD: out-of-bounds
#endif
}
