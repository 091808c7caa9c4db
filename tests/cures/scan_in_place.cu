// Wrong: a scan adds in place: neighbours read what is overwritten.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: Keep what is read in a variable, and put __syncthreads() between the reads and the writes. Not all threads of the
__global__ void scan(const int *x, int *y) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 1; d < 64; d *= 2) {
#ifdef MENDED
        int v = t >= d ? s[t - d] + s[t] : s[t];
        __syncthreads();
        s[t] = v;
        __syncthreads();
#else
        if (t >= d)
            s[t] += s[t - d];  // HAZARD: race
        __syncthreads();
#endif
    }
    y[t] = s[t];
}
