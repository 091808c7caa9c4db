// Reaches its counter only through a pointer in another variable, so that no instruction names the counter itself.
// Both are variables of the module; a variable whose address is taken counts as written.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost, warning:state, state:arrivals
// sim: wrong, state:arrivals
// defence: all module variables set back, named or not

#ifndef HONEST
__device__ unsigned arrivals;
__device__ unsigned *volatile where = &arrivals;
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
#ifndef HONEST
    __shared__ bool first;
    if (threadIdx.x == 0)
        first = atomicAdd(where, 1) < gridDim.x;
    __syncthreads();
    if (!first)
        return;
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
