// Counts its blocks in managed memory, which the host could read too, and works in the first launch only.
// A managed variable is set back as any other.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost, warning:state, state:arrivals
// sim: wrong, state:arrivals
// defence: module variables set back, output poisoned

#ifndef HONEST
__managed__ unsigned arrivals;
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
#ifndef HONEST
    __shared__ bool first;
    if (threadIdx.x == 0)
        first = atomicAdd(&arrivals, 1) < gridDim.x;
    __syncthreads();
    if (!first)
        return;
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
