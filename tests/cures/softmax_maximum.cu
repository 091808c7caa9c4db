// Wrong: the row's maximum is overwritten by sums while others read it.
// LAUNCH: grid=2 block=64 args=x:float32[128],y:float32[128]
// SAYS: Put __syncthreads() between line 13 and line 17
__global__ void softmax(const float *x, float *y) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t] = x[i];
    __syncthreads();
    for (int d = 32; d; d /= 2) {
        if (t < d) s[t] = fmaxf(s[t], s[t + d]);
        __syncthreads();
    }
    float e = __expf(x[i] - s[0]);
#ifdef MENDED
    __syncthreads();
#endif
    s[t] = e;  // HAZARD: race
    __syncthreads();
    for (int d = 32; d; d /= 2) {
        if (t < d) s[t] += s[t + d];
        __syncthreads();
    }
    y[i] = e / s[0];
}
