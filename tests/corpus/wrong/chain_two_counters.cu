// Wrong: blocks that count in two places know nothing of those that count in the other.
// LAUNCH: grid=8 block=32 args=x:int32[8],part:int32[8],out:int32[2]
__device__ unsigned count[2];
__global__ void sums(const int *x, int *part, int *out) {
    int b = blockIdx.x;
    if (threadIdx.x) return;
    part[b] = x[b] + 1;
    __threadfence();
    if (atomicAdd(&count[b % 2], 1u) < gridDim.x / 2 - 1) return;
    __threadfence();
    int sum = 0;
    for (int i = 0; i < gridDim.x; i++)
        sum += part[i];                          // HAZARD: race
    out[b % 2] = sum;
}
