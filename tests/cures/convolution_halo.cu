// Wrong: the halo is loaded under a condition, and used at once.
// LAUNCH: grid=2 block=64 shared=264 args=x:float32[130],y:float32[128]
// SAYS: Put __syncthreads() between line 11 and line 15, outside of the condition in line 8, where all threads of the block
__global__ void convolve(const float *x, float *y) {
    extern __shared__ float s[];
    int t = threadIdx.x, first = blockIdx.x * 64;
    s[t + 1] = x[first + t + 1];
    if (t == 0) {
        s[0] = x[first];
        s[65] = x[first + 65];
    }
#ifdef MENDED
    __syncthreads();
#endif
    y[first + t] = s[t] + 2 * s[t + 1] + s[t + 2];  // HAZARD: race
}
