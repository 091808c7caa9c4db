// Wrong: a bin that nobody counted has a mean of zero elements.
// LAUNCH: grid=2 block=32 args=x:int32[64],y:int32[64]
// SAYS: divide only if the divisor is not 0
__global__ void means(const int *x, int *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, count = i % 3;
#ifdef MENDED
    y[i] = count ? x[i] / count : 0;
#else
    y[i] = x[i] / count;  // HAZARD: undefined-value
#endif
}
