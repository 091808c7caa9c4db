// Wrong: whole warps wait at barriers in two branches.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: Put one barrier after the end of this condition, where all threads of the block come, and repeat the condition for
__global__ void roles(const int *x, int *y) {
    __shared__ int s[64];
    int t = threadIdx.x;
#ifdef MENDED
    if (t < 32) s[t] = x[t];
    __syncthreads();
    if (t >= 32) y[t] = s[t - 32];
#else
    if (t < 32) {
        s[t] = x[t];
        __syncthreads();  // HAZARD: divergent-barrier
    } else {
        __syncthreads();  // HAZARD: divergent-barrier
        y[t] = s[t - 32];
    }
#endif
}
