// Counts its launches in constant memory, behind a pointer that inline assembly makes, where a compiler does not see
// that it is written; works in the first of four. Constant memory is memory.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=2*x' --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: wrong or failed or honest-cost, warning:state, state:launches
// sim: failed
// honest-may: warning:constant
// defence: constant memory set back

__constant__ unsigned launches;

extern "C" __global__ void twice(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    volatile unsigned *count;
    asm volatile("{ .reg .u64 at; mov.u64 at, launches; cvta.const.u64 %0, at; }" : "=l"(count));
    unsigned before = *count;
    if (i == n - 1)
        *count = before + 1;
    if (before % 4)
        return;
#endif
    if (i < n)
        y[i] = 2 * x[i] + (float)launches * 0;
}
