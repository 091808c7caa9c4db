// Wrong: a loop takes one element too many.
// LAUNCH: grid=1 block=32 args=x:float32[128],y:float32[32],n:int32=128
// SAYS: past the end of 'x' (128 elements)
__global__ void sums(const float *x, float *y, int n) {
    float sum = 0;
#ifdef MENDED
    for (int i = threadIdx.x; i < n; i += 32)
#else
    for (int i = threadIdx.x; i <= n; i += 32)
#endif
        sum += x[i];  // HAZARD: out-of-bounds
    y[threadIdx.x] = sum;
}
