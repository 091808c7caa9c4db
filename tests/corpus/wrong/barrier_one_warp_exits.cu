// Wrong: the first warp leaves the loop for good while the second still meets its barrier.
// LAUNCH: grid=1 block=64 args=in:int32[64],out:int32[64]
__global__ void rounds(const int *in, int *out) {
    __shared__ int s[64];
    int t = threadIdx.x, v = in[t];
    for (int k = 0; k < 4; k++) {
        if (t < 32 && k == 2) return;
        s[t] = v;
        __syncthreads();                         // HAZARD: divergent-barrier
        v += s[t ^ 1];
        __syncthreads();                         // HAZARD: divergent-barrier
    }
    out[t] = v;
}
