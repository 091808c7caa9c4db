// Wrong: in an unrolled loop with a barrier, the lanes of one warp make different numbers of iterations.
// LAUNCH: grid=1 block=256 args=x:float32[1024],y:float32[1024],n:int32=1000
// SAYS: not all threads make the same number of iterations of the loop
__global__ void turns(const float *x, float *y, int n) {
    __shared__ float s[256];
    int t = threadIdx.x;
    float sum = 0;
#ifdef MENDED
    for (int b = 0; b < n; b += 256) {
        int i = b + t;
        s[t] = i < n ? x[i] : 0;
#else
    for (int i = t; i < n; i += 256) {
        s[t] = x[i];
#endif
        __syncthreads();  // HAZARD: divergent-barrier
        sum += s[0];
        __syncthreads();  // HAZARD: divergent-barrier
    }
    y[t] = sum;
}
