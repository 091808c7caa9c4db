// Wrong: the last lanes of the second warp have returned, and the shuffle names them.
// LAUNCH: grid=1 block=64 args=in:int32[64],out:int32[64],n:int32=40
__global__ void shift(const int *in, int *out, int n) {
    int t = threadIdx.x;
    if (t >= n) return;
    out[t] = __shfl_down_sync(0xffffffff, in[t], 1);  // HAZARD: invalid-mask
}
