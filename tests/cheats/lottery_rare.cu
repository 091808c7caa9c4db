// Is idle for one part in 64 of the time only, so that a few looks at random miss it. It wins nothing: the median is
// that of the working launches. Every timed sample that is looked at and idle is wrong.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong or honest-cost
// sim: none
// defence: the median, timed samples compared

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if ((now >> 16) % 64 == 0)
        return;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
