// Wrong: the stride of the loop lacks the number of blocks.
// LAUNCH: grid=4 block=64 args=x:float32[1000],y:float32[1000],n:int32=1000
// SAYS: advance by gridDim.x * blockDim.x
__global__ void axpy(const float *x, float *y, int n) {
#ifdef MENDED
    int stride = gridDim.x * blockDim.x;
#else
    int stride = blockDim.x;
#endif
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
        y[i] += 2 * x[i];  // HAZARD: race
}
