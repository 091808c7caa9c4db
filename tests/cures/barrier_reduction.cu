// Wrong: the barrier of a reduction stands under its condition.
// LAUNCH: grid=1 block=128 args=x:float32[128],y:float32[1]
// SAYS: Put one barrier after the end of this condition, where all threads of the block come, and repeat the condition for
__global__ void reduce(const float *x, float *y) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    for (int d = 64; d > 0; d >>= 1) {
        if (t < d) {
            s[t] += s[t + d];
#ifndef MENDED
            __syncthreads();  // HAZARD: divergent-barrier
#endif
        }
#ifdef MENDED
        __syncthreads();
#endif
    }
    if (t == 0) *y = s[0];
}
