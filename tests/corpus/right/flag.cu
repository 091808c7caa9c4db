// Whether a block holds a value: several threads set one flag, by an atomic.
__global__ void found(const int *in, int *out, int wanted, int n) {
    __shared__ int hit;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == 0) hit = 0;
    __syncthreads();
    if (i < n && in[i] == wanted) atomicExch(&hit, 1);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = hit;
}
