// The first warp returns in the middle of a loop whose barriers the second still meets.
__global__ void rounds(const int *in, int *out) {
    __shared__ int s[64];
    int t = threadIdx.x, v = in[t];
    for (int k = 0; k < 4; k++) {
        if (t < 32 && k == 2) return;
        s[t] = v;
        __syncthreads();
        v += s[t ^ 1];
        __syncthreads();
    }
    out[t] = v;
}
