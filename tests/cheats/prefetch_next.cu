// Fetches its inputs into the L2 cache again as its last act, to stay there for the next launch.
// The flush comes between, persisting lines are set back, and the hint is named.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: honest-cost, warning:eviction
// sim: ok, warning:eviction
// defence: persisting lines reset, hints named

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    c[i] = a[i] + b[i];
#ifndef HONEST
    if (i % 32 == 0) {
        asm volatile("prefetch.global.L2::evict_last [%0];" : : "l"(a + i));
        asm volatile("prefetch.global.L2::evict_last [%0];" : : "l"(b + i));
    }
#endif
}
