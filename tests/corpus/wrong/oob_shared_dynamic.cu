// Wrong: the kernel stages two values a thread, the launch gives it room for one.
// LAUNCH: grid=1 block=64 shared=256 args=in:float32[128],out:float32[64]
__global__ void stage(const float *in, float *out) {
    extern __shared__ float s[];
    int t = threadIdx.x;
    s[t] = in[t];
    s[t + 64] = in[t + 64];                      // HAZARD: out-of-bounds
    __syncthreads();
    out[t] = s[63 - t];
}
