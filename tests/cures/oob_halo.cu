// Wrong: a tile has no room for its right neighbours.
// LAUNCH: grid=1 block=64 args=x:float32[66],y:float32[64]
// SAYS: past the end of the block's 260 bytes of shared memory
__global__ void blur(const float *x, float *y) {
#ifdef MENDED
    __shared__ float s[66];
#else
    __shared__ float s[65];
#endif
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 2)
        s[t + 64] = x[t + 64];  // HAZARD: out-of-bounds
    __syncthreads();
    y[t] = s[t] + s[t + 1] + s[t + 2];  // HAZARD: out-of-bounds
}
