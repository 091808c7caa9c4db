// Wrong: a tile is refilled in a loop whose threads make different numbers of turns.
// LAUNCH: grid=1 block=64 args=x:int32[200],y:int32[200],n:int32=200
// SAYS: Put __syncwarp() at the end of the body of the loop in line 15, after line 17. Not all threads of the warp make
__global__ void pairs(const int *x, int *y, int n) {
    __shared__ int s[64];
    int t = threadIdx.x;
#ifdef MENDED
    for (int i = t; i < (n + 63) / 64 * 64; i += 64) {
        if (i < n) s[t] = x[i];
        __syncthreads();
        if (i < n) y[i] = s[t ^ 1] + s[t];
        __syncthreads();
    }
#else
    for (int i = t; i < n; i += 64) {
        s[t] = x[i];  // HAZARD: race
        y[i] = s[t ^ 1] + s[t];  // HAZARD: race
    }
#endif
}
