// Wrong: only the first 48 threads come to the barrier, while others of their warp wait at the next one.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[64]
__global__ void some(const float *in, float *out) {
    int t = threadIdx.x;
    float v = in[t];
    if (t < 48) {
        __syncthreads();                         // HAZARD: divergent-barrier
        v += 1;
    }
    __syncthreads();                             // HAZARD: divergent-barrier
    out[t] = v;
}
