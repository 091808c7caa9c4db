// Wrong: the turns of a tree reduction are not kept apart.
// LAUNCH: grid=2 block=128 args=x:float32[256],y:float32[2]
// SAYS: Put __syncthreads() at the end of the body of the loop in line 9, after line 11, outside of the condition in line
__global__ void reduce(const float *x, float *y) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * 128 + t];
    __syncthreads();
    for (int d = 64; d > 0; d /= 2) {
        if (t < d)
            s[t] += s[t + d];  // HAZARD: race
#ifdef MENDED
        __syncthreads();
#endif
    }
    if (t == 0) y[blockIdx.x] = s[0];
}
