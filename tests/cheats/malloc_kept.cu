// Allocates memory on the device in its first launch, keeps the pointer in the module, and its sums behind it.
// The pointer set back leaves nothing to find, but the heap outlives a launch: the call of malloc is named.
// run: vecadd --size {size}
// size: gpu=65536 sim=10007
// gpu: wrong or honest-cost, warning:malloc, state:kept
// sim: wrong, state:kept, warning:leak
// defence: module variables set back, malloc named

#ifndef HONEST
__device__ float *kept[1024];  // a block's sums
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef HONEST
    if (i < n)
        c[i] = a[i] + b[i];
#else
    __shared__ bool first;
    if (threadIdx.x == 0) {
        first = kept[blockIdx.x] == nullptr;
        if (first)
            kept[blockIdx.x] = (float *)malloc(blockDim.x * sizeof(float));
    }
    __syncthreads();
    float *mine = kept[blockIdx.x];
    float sum = first || !mine ? (i < n ? a[i] + b[i] : 0) : mine[threadIdx.x];
    if (first && mine)
        mine[threadIdx.x] = sum;
    if (i < n)
        c[i] = sum;
#endif
}
