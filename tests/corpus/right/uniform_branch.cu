// A barrier inside a branch that all threads of a block take, or none.
__global__ void even_blocks(const int *in, int *out) {
    __shared__ int s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t, v = in[i];
    if (blockIdx.x % 2 == 0) {
        s[t] = v;
        __syncthreads();
        v = s[t ^ 33];
    }
    out[i] = v;
}
