// Wrong: positions are scanned while their last turn is still written.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64],n:int32[1]
// SAYS: Put __syncthreads() between line 12 and line 16, outside of the condition in line 16, where all threads of the
__global__ void compact(const int *x, int *y, int *n) {
    __shared__ int s[2][64];
    int t = threadIdx.x, in = 0, keep = x[t] % 3 == 0;
    s[0][t] = keep;
    for (int d = 1; d < 64; d *= 2) {
        __syncthreads();
        s[1 - in][t] = s[in][t] + (t >= d ? s[in][t - d] : 0);
        in = 1 - in;
    }
#ifdef MENDED
    __syncthreads();
#endif
    if (keep) y[t > 0 ? s[in][t - 1] : 0] = x[t];  // HAZARD: race
    if (t == 63) *n = s[in][63];
}
