// Wrong: the tile has room for 32 threads and the block has 48.
// LAUNCH: grid=1 block=48 args=in:float32[48],out:float32[48]
__global__ void stage(const float *in, float *out) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t] = in[t];                                // HAZARD: out-of-bounds
    __syncthreads();
    out[t] = s[31 - t % 32];
}
