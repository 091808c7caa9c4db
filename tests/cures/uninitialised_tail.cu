// Wrong: a reduction reads what the threads behind the end never set.
// LAUNCH: grid=1 block=64 args=x:float32[50],y:float32[1],n:int32=50
// SAYS: which no thread has written
__global__ void reduce(const float *x, float *y, int n) {
    __shared__ float s[64];
    int t = threadIdx.x;
#ifdef MENDED
    s[t] = t < n ? x[t] : 0;
#else
    if (t < n) s[t] = x[t];
#endif
    __syncthreads();
    for (int d = 32; d; d /= 2) {
        if (t < d) s[t] += s[t + d];  // HAZARD: uninitialized-shared
        __syncthreads();
    }
    if (t == 0) *y = s[0];
}
