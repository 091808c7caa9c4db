// Wrong: the last block goes past the end.
// LAUNCH: grid=4 block=32 args=x:float32[100],y:float32[100],n:int32=100
// SAYS: past the end of 'x' (100 elements)
__global__ void scale(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef MENDED
    if (i < n)
#endif
    y[i] = 2 * x[i];  // HAZARD: out-of-bounds
}
