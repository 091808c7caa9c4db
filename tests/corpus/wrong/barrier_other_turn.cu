// Wrong: each warp meets the barrier in a turn of the loop of its own.
// LAUNCH: grid=1 block=64 args=in:int32[64],out:int32[64]
__global__ void turns(const int *in, int *out) {
    int t = threadIdx.x, v = in[t];
#pragma unroll 1
    for (int k = 0; k < 2; k++) {
        if (k == t / 32) __syncthreads();  // HAZARD: divergent-barrier
        v += k;
    }
    out[t] = v;
}
