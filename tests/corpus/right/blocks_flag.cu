// Whether any value is negative: blocks write the same flag, each the same value, and read what nobody writes.
__global__ void negative(const int *in, int *flag, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && in[i] < 0) *flag = 1;
}
