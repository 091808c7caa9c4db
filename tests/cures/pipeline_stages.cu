// Wrong: warps write the next stage while others still read it.
// LAUNCH: grid=1 block=128 args=x:float32[1024],y:float32[128]
// SAYS: Put __syncthreads() between line 13 and line 17
__global__ void stages(const float *x, float *y) {
    __shared__ float ring[2][128];
    int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 8; ++k) {
        float v = x[k * 128 + t];
        if (v > 0)
            ring[k & 1][t] = v;
        else
            ring[k & 1][t] = -v;
#ifdef MENDED
        __syncthreads();
#endif
        sum += ring[k & 1][(t + 64) % 128];  // HAZARD: race
#ifdef MENDED
        __syncthreads();
#endif
    }
    y[t] = sum;
}
