// Works in every other millisecond by the global timer and is idle in the rest: no state, and right whenever it is
// looked at in the right moment. Enough timed samples, chosen at random, meet an idle one.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong
// sim: none
// defence: output poisoned, timed samples compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now >> 20 & 1)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
