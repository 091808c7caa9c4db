// Butterflies and rotations within groups of eight lanes.
__global__ void eights(const int *in, int *sums, int *turned, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = i < n ? in[i] : 0, sum = v;
    for (int d = 4; d > 0; d /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d, 8);
    int next = __shfl_sync(0xffffffffu, v, threadIdx.x + 1, 8);
    if (i < n) {
        sums[i] = sum;
        turned[i] = next;
    }
}
