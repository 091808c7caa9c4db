// Wrong: the second buffer is read in the turn in which it is filled.
// LAUNCH: grid=1 block=64 args=x:float32[512],y:float32[64]
// SAYS: Put __syncthreads() at the end of the body of the loop in line 9, after line 15
__global__ void sums(const float *x, float *y) {
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0;
    s[0][t] = x[t];
    for (int k = 0; k < 8; ++k) {
        if (k < 7)
            s[(k + 1) % 2][t] = x[(k + 1) * 64 + t];  // HAZARD: race
#ifdef MENDED
        __syncthreads();
#endif
        sum += s[k % 2][63 - t];  // HAZARD: race
#ifdef MENDED
        __syncthreads();
#endif
    }
    y[t] = sum;
}
