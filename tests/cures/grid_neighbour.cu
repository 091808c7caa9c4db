// Wrong: blocks read what their neighbours write in place.
// LAUNCH: grid=4 block=32 args=x:float32[130],y:float32[130]
// SAYS: read it in another launch, or, if the old value is needed, write to another array
__global__ void smooth(float *x, float *y) {
    int i = blockIdx.x * 32 + threadIdx.x + 1;
    float v = x[i - 1] + x[i + 1];
#ifdef MENDED
    y[i] = v;
#else
    __syncthreads();
    x[i] = v;  // HAZARD: race
#endif
}
