// A block of 40 threads, its second warp a quarter full: barriers count the threads that there are.
__global__ void rotate(const int *in, int *out, int n) {
    __shared__ int s[40];
    int t = threadIdx.x, i = blockIdx.x * 40 + t;
    s[t] = i < n ? in[i] : 0;
    __syncthreads();
    int v = s[(t + 1) % 40];
    __syncthreads();
    s[t] = v + s[t] * 0;
    __syncthreads();
    if (i < n) out[i] = s[39 - t];
}
