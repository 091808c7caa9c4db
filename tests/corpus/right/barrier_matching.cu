// Each warp takes a branch of its own, and the barriers of both branches match.
__global__ void exchange(const int *in, int *out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = in[t];
        __syncthreads();
        out[t] = s[t + 32];
    } else {
        s[t] = 2 * in[t];
        __syncthreads();
        out[t] = s[t - 32];
    }
}
