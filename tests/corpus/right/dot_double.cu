// Dot product in double precision: shared tree, one atomic a block.
__global__ void dot(const double *x, const double *y, double *out, int n) {
    __shared__ double s[96];
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t;
    s[t] = i < n ? x[i] * y[i] : 0;
    __syncthreads();
    for (int left = blockDim.x; left > 1;) {
        int half = (left + 1) / 2;
        if (t < left / 2) s[t] += s[t + half];
        __syncthreads();
        left = half;
    }
    if (t == 0) atomicAdd(out, s[0]);
}
