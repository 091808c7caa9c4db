// Wrong: a stencil writes in place what the threads of the next block still read.
// LAUNCH: grid=2 block=64 args=x:float32[130],y:float32[130]
// SAYS: read it in another launch, or, if the old value is needed, write to another array
__global__ void smooth(float *x, float *y) {
    int i = blockIdx.x * 64 + threadIdx.x + 1;
#ifdef MENDED
    y[i] = (x[i - 1] + x[i + 1]) / 3;
#else
    x[i] = (x[i - 1] + x[i + 1]) / 3;  // HAZARD: race
#endif
}
