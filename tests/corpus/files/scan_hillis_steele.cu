// Inclusive scan with two buffers.
// run: -g 1 -b n --shared '2*4*n' --arg 'in=int32[n]:random' --arg 'out=int32[n]:empty' --arg n=128
//      --expect 'out=np.cumsum(in)'
// expect: ok
__global__ void scan(const int *in, int *out, int n) {
    extern __shared__ int temp[];
    int t = threadIdx.x, pout = 0, pin = 1;
    temp[t] = in[t];
    __syncthreads();
    for (int offset = 1; offset < n; offset <<= 1) {
        pout = 1 - pout;
        pin = 1 - pout;
        temp[pout * n + t] = temp[pin * n + t] + (t >= offset ? temp[pin * n + t - offset] : 0);
        __syncthreads();
    }
    out[t] = temp[pout * n + t];
}
