// Exclusive scan of one block, work-efficient: up the tree, then down.
__global__ void scan(const int *in, int *out, int n) {
    extern __shared__ int s[];
    int t = threadIdx.x, m = 2 * blockDim.x;
    s[2 * t] = 2 * t < n ? in[2 * t] : 0;
    s[2 * t + 1] = 2 * t + 1 < n ? in[2 * t + 1] : 0;
    int offset = 1;
    for (int d = m / 2; d > 0; d /= 2) {
        __syncthreads();
        if (t < d) s[offset * (2 * t + 2) - 1] += s[offset * (2 * t + 1) - 1];
        offset *= 2;
    }
    if (t == 0) s[m - 1] = 0;
    for (int d = 1; d < m; d *= 2) {
        offset /= 2;
        __syncthreads();
        if (t < d) {
            int left = offset * (2 * t + 1) - 1, right = offset * (2 * t + 2) - 1;
            int v = s[left];
            s[left] = s[right];
            s[right] += v;
        }
    }
    __syncthreads();
    if (2 * t < n) out[2 * t] = s[2 * t];
    if (2 * t + 1 < n) out[2 * t + 1] = s[2 * t + 1];
}
