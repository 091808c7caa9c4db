// Halves the values until the block's maximum is small: every thread leaves the loop in the same round.
__global__ void shrink(int *x, int *rounds) {
    __shared__ int most;
    int t = threadIdx.x, i = blockIdx.x * blockDim.x + t, v = x[i], round = 0;
    while (true) {
        if (t == 0) most = 0;
        __syncthreads();
        atomicMax(&most, v);
        __syncthreads();
        bool done = most < 10;
        __syncthreads();
        if (done) break;
        v /= 2;
        round++;
    }
    x[i] = v;
    if (t == 0) rounds[blockIdx.x] = round;
}
