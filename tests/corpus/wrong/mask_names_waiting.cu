// Wrong: the other half of the warp waits at the barrier of the block for those that wait for it.
// LAUNCH: grid=1 block=32 args=in:int32[32],out:int32[32]
__global__ void wait(const int *in, int *out) {
    __shared__ int s[32];
    int t = threadIdx.x, v = in[t];
    if (t < 16) v += __shfl_xor_sync(0xffffffff, v, 8);  // HAZARD: invalid-mask
    s[t] = v;
    __syncthreads();
    out[t] = s[31 - t];
}
