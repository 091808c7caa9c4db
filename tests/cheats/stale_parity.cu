// Writes the even elements in one launch and the odd ones in the next: after two launches all are right.
// A sample that starts from poison has only half of them.
// run: vecadd --size {size}
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// defence: output poisoned before every sample

#ifndef HONEST
__device__ unsigned arrivals;  // of blocks, over all launches
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    __shared__ unsigned parity;
    if (threadIdx.x == 0)
        parity = atomicAdd(&arrivals, 1) / gridDim.x % 2;
    __syncthreads();
    if (i % 2 != parity)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
