// Wrong: some threads skip the barrier of a turn.
// LAUNCH: grid=1 block=64 args=x:int32[256],y:int32[64]
// SAYS: Put it around the work, not around the barrier
__global__ void turns(const int *x, int *y) {
    __shared__ int s[64];
    int t = threadIdx.x, sum = 0;
    s[t] = 0;
    __syncthreads();
    for (int k = 0; k < 4; ++k) {
#ifdef MENDED
        if (x[k * 64 + t] != 5) s[t] = x[k * 64 + t];
        __syncthreads();
        if (x[k * 64 + t] != 5) sum += s[t ^ 1];
        __syncthreads();
#else
        if (x[k * 64 + t] == 5) continue;
        s[t] = x[k * 64 + t];
        __syncthreads();  // HAZARD: divergent-barrier
        sum += s[t ^ 1];
        __syncthreads();  // HAZARD: divergent-barrier
#endif
    }
    y[t] = sum;
}
