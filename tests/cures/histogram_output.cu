// Wrong: counters are read while others still count.
// LAUNCH: grid=1 block=128 args=x:int32[512],h:int32[16]
// SAYS: Put __syncthreads() between line 10 and line 14, outside of the condition in line 14, where all threads of the
__global__ void histogram(const int *x, int *h) {
    __shared__ unsigned s[16];
    int t = threadIdx.x;
    if (t < 16) s[t] = 0;
    __syncthreads();
    for (int i = t; i < 512; i += blockDim.x)
        atomicAdd(&s[x[i]], 1u);
#ifdef MENDED
    __syncthreads();
#endif
    if (t < 16)
        h[t] = s[t];  // HAZARD: race
}
