// Wrong: two threads write different values to one word in one instruction.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[32]
__global__ void halve(const float *in, float *out) {
    __shared__ float s[32];
    int t = threadIdx.x;
    s[t / 2] = in[t];                            // HAZARD: race
    __syncthreads();
    if (t < 32) out[t] = s[t];
}
