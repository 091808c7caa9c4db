// Wrong: a barrier stands under a condition that parts each warp.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: Put one barrier after the end of this condition, where all threads of the block come, and repeat the condition for
__global__ void pick(const int *x, int *y) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = 0;
    if (t % 2) {
        s[t] = x[t];
#ifndef MENDED
        __syncthreads();  // HAZARD: divergent-barrier
#endif
    }
#ifdef MENDED
    __syncthreads();
#endif
    y[t] = s[t ^ 1];
}
