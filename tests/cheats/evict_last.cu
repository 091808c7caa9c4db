// Loads its input under a policy that keeps it in the L2 cache through the flush, so that a cold sample is not cold.
// Persisting lines are set back before every sample, and the hint is named.
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
#ifdef HONEST
    c[i] = a[i] + b[i];
#else
    unsigned long long keep;
    float left, right;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(keep));
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(left) : "l"(a + i), "l"(keep));
    asm volatile("ld.global.L2::cache_hint.f32 %0, [%1], %2;" : "=f"(right) : "l"(b + i), "l"(keep));
    c[i] = left + right;
#endif
}
