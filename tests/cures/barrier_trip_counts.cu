// Wrong: threads of a block meet a barrier in loops of different lengths.
// LAUNCH: grid=1 block=128 args=x:float32[700],y:float32[1],n:int32=700
// SAYS: Let all threads make the same number, and put the condition around the work, not around the barrier
__global__ void total(const float *x, float *y, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    float sum = 0;
#ifdef MENDED
    n = (n + 127) / 128 * 128;
#endif
    for (int i = t; i < n; i += 128) {
        s[t] = i < 700 ? x[i] : 0;
        __syncthreads();  // HAZARD: divergent-barrier
        sum += s[(t + 1) % 128];
        __syncthreads();  // HAZARD: divergent-barrier
    }
    s[t] = sum;
    __syncthreads();  // HAZARD: divergent-barrier
    if (t == 0) for (int i = 0; i < 128; ++i) *y += s[i];
}
