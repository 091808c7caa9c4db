// Wrong: threads return before the accesses that need a barrier.
// LAUNCH: grid=2 block=64 args=x:int32[100],y:int32[100],n:int32=100
// SAYS: Put __syncthreads() between line 13 and line 14. Threads that leave in line 12 must also reach the barrier: put the
__global__ void shift(const int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
#ifdef MENDED
    if (i < n) s[t] = x[i];
    __syncthreads();
    if (i < n) y[i] = t > 0 ? s[t - 1] : 0;
#else
    if (i >= n) return;
    s[t] = x[i];
    y[i] = t > 0 ? s[t - 1] : 0;  // HAZARD: race
#endif
}
