// Half a warp works on its own and names itself in the mask.
__global__ void halves(const int *in, int *out) {
    __shared__ int s[32];
    int t = threadIdx.x;
    if (t < 16) {
        s[t] = in[t];
        __syncwarp(0x0000ffffu);
        out[t] = s[15 - t];
    } else {
        out[t] = -in[t];
    }
}
