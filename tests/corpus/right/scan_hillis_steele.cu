// Inclusive scan of one block, double-buffered: each step reads one half and writes the other.
__global__ void scan(const int *in, int *out, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x, b = blockDim.x, from = 0;
    s[t] = t < n ? in[t] : 0;
    __syncthreads();
    for (int d = 1; d < b; d *= 2) {
        int to = b - from;
        s[to + t] = s[from + t] + (t >= d ? s[from + t - d] : 0);
        from = to;
        __syncthreads();
    }
    if (t < n) out[t] = s[from + t];
}
