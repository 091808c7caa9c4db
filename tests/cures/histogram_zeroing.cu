// Wrong: counting begins before the counters are cleared.
// LAUNCH: grid=1 block=128 args=x:int32[512],h:int32[16]
// SAYS: Put __syncthreads() between line 8 and line 12, outside of the condition in line 7, where all threads of the block
__global__ void histogram(const int *x, int *h) {
    __shared__ int s[16];
    int t = threadIdx.x;
    if (t < 16)
        s[t] = 0;  // HAZARD: race
#ifdef MENDED
    __syncthreads();
#endif
    for (int i = t; i < 512; i += 128)
        atomicAdd(&s[x[i]], 1);  // HAZARD: race
    __syncthreads();
    if (t < 16) h[t] = s[t];
}
