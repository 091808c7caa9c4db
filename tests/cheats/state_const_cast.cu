// Calls its counter const and writes to it all the same, through a cast: a list of the variables that are not const
// misses it. What counts is whether the code can write there, not what the declaration says.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost, warning:state, state:arrivals
// sim: wrong, state:arrivals
// defence: all module variables set back, const or not

#ifndef HONEST
extern "C" __device__ const unsigned arrivals = 0;
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
#ifndef HONEST
    __shared__ bool first;
    if (threadIdx.x == 0)
        first = atomicAdd(const_cast<unsigned *>(&arrivals), 1) < gridDim.x;
    __syncthreads();
    if (!first)
        return;
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
