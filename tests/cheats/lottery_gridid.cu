// Works in one launch of four, by the number that the driver gives to launches: a counter that is not a state.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong or honest-cost
// sim: none
// defence: output poisoned, timed samples compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    unsigned long long launch;
    asm volatile("mov.u64 %0, %%gridid;" : "=l"(launch));
    if (launch % 4)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
