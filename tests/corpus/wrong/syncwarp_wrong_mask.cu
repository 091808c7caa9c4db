// Wrong: the two halves of the warp sync apart, and each reads what the other wrote.
// LAUNCH: grid=1 block=32 args=in:int32[32],out:int32[32]
__global__ void cross(const int *in, int *out) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = in[t];                                // HAZARD: race
    if (t < 16) {
        __syncwarp(0x0000ffffu);
        out[t] = s[t + 16];                      // HAZARD: race
    } else {
        __syncwarp(0xffff0000u);
        out[t] = s[t - 16] + 1;                  // HAZARD: race
    }
}
