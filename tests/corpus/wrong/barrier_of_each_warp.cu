// Wrong: each warp takes a branch of its own and waits at the barrier of that branch, although their numbers match.
// LAUNCH: grid=1 block=64 args=in:int32[64],out:int32[64]
__global__ void exchange(const int *in, int *out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = in[t];
        __syncthreads();     // HAZARD: divergent-barrier
        out[t] = s[t + 32];
    } else {
        s[t] = 2 * in[t];
        __syncthreads();     // HAZARD: divergent-barrier
        out[t] = s[t - 32];
    }
}
