// Wrong: only the first 48 threads come to the barrier.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[64]
__global__ void some(const float *in, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    if (t < 48) {
        s[t] = in[t];
        __syncthreads();                         // HAZARD: divergent-barrier
        out[t] = s[47 - t];
    }
}
