// Each block counts its positive values by the counting barrier, and tells whether all or any are.
__global__ void count(const float *in, int *counts, int *all, int *any, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool positive = i < n && in[i] > 0;
    int c = __syncthreads_count(positive);
    int every = __syncthreads_and(positive);
    int some = __syncthreads_or(positive);
    if (threadIdx.x == 0) {
        counts[blockIdx.x] = c;
        all[blockIdx.x] = every != 0;
        any[blockIdx.x] = some != 0;
    }
}
