// Wrong: each branch has a barrier of its own.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: Put one barrier after the end of this condition, where all threads of the block come, and repeat the condition for
__global__ void both(const int *x, int *y) {
    __shared__ int s[64];
    int t = threadIdx.x;
#ifdef MENDED
    if (t < 20) s[t] = x[t];
    else s[t] = 2 * x[t];
    __syncthreads();
    if (t < 20) y[t] = s[63 - t];
    else y[t] = s[63 - t] + 1;
#else
    if (t < 20) {
        s[t] = x[t];
        __syncthreads();  // HAZARD: divergent-barrier
        y[t] = s[63 - t];
    } else {
        s[t] = 2 * x[t];
        __syncthreads();  // HAZARD: divergent-barrier
        y[t] = s[63 - t] + 1;
    }
#endif
}
