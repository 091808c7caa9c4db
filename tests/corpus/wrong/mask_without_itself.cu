// Wrong: the upper half of the warp votes with a mask that names the lower half alone.
// LAUNCH: grid=1 block=32 args=in:int32[32],out:int32[32]
__global__ void vote(const int *in, int *out) {
    int t = threadIdx.x;
    out[t] = __popc(__ballot_sync(0xffff, in[t] > 5));  // HAZARD: invalid-mask
}
