// One dynamic allocation for two types: doubles first, then ints behind them.
__global__ void split(const double *x, const int *k, double *out, int n) {
    extern __shared__ double pool[];
    double *value = pool;
    int *index = reinterpret_cast<int *>(pool + blockDim.x);
    int t = threadIdx.x;
    value[t] = t < n ? x[t] : 0;
    index[t] = t < n ? k[t] : 0;
    __syncthreads();
    if (t < n) out[t] = value[index[t]] + index[n - 1 - t];
}
