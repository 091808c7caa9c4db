// Idle on the upper half of the multiprocessors; the lower half does its blocks only, and which those are no two
// launches have alike.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong
// sim: none
// defence: output poisoned, the whole output compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    unsigned here, all;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(here));
    asm volatile("mov.u32 %0, %%nsmid;" : "=r"(all));
    if (2 * here >= all)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
