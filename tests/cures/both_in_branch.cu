// Wrong: both accesses stand in a branch that not all threads take.
// LAUNCH: grid=1 block=128 args=x:int32[128],y:int32[128],n:int32=100
// SAYS: Put __syncthreads() between line 15 and line 16. Not all threads of the block meet the condition in line 14: the
__global__ void neighbours(const int *x, int *y, int n) {
    __shared__ int s[128];
    int t = threadIdx.x;
#ifdef MENDED
    if (t < n)
        s[t] = x[t] * 2;
    __syncthreads();
    if (t < n)
        y[t] = s[(t + 1) % n];
#else
    if (t < n) {
        s[t] = x[t] * 2;
        y[t] = s[(t + 1) % n];  // HAZARD: race
    }
#endif
}
