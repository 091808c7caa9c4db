// Idle in every other window of four milliseconds, and moves the last bit of its output by the clock, within the
// tolerance: no two outputs have the same digest, so that comparing them in full takes long and is done seldom.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=2*x' --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: none
// defence: output poisoned, timed samples compared

extern "C" __global__ void twice(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] = 2 * x[i];
#else
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (now >> 22 & 1)
        return;
    y[i] = __uint_as_float(__float_as_uint(2 * x[i]) ^ ((unsigned)clock() >> 4 & 1));
#endif
}
