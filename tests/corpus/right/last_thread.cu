// Each thread counts itself after a fence; the last one of all blocks reads what the others stored, also in its own block.
__device__ unsigned done;
__global__ void total(const int *in, int *part, int *sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[i] = i < n ? 2 * in[i] : 0;
    __threadfence();
    unsigned before = atomicAdd(&done, 1);
    __threadfence();
    if (before == gridDim.x * blockDim.x - 1) {
        int s = 0;
        for (int k = 0; k < gridDim.x * blockDim.x; ++k) s += part[k];
        *sum = s;
    }
}
