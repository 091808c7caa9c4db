// Wrong: an unsigned index falls below 0.
// LAUNCH: grid=2 block=64 args=y:float32[128]
// SAYS: the index -1 wraps, because it is an unsigned 32-bit integer
__global__ void shift(float *y) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef MENDED
    if (i > 0) y[i - 1] = 1;
#else
    y[i - 1] = 1;  // HAZARD: out-of-bounds
#endif
}
