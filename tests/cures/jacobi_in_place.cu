// Wrong: a stencil writes in place what its neighbours still read.
// LAUNCH: grid=1 block=128 args=x:float32[130]
// SAYS: Keep what is read in a variable, and put __syncthreads() between the reads and the writes
__global__ void smooth(float *x) {
    int i = threadIdx.x + 1;
#ifdef MENDED
    float v = (x[i - 1] + x[i + 1]) / 2;
    __syncthreads();
    x[i] = v;
#else
    x[i] = (x[i - 1] + x[i + 1]) / 2;  // HAZARD: race
#endif
}
