// Writes over the guard zone behind its output and writes the pattern back before it ends.
// It can win nothing by that, as nothing is kept; the simulator names the access all the same.
// run: vecadd --size {size}
// size: gpu=8388607 sim=10007
// gpu: wrong or honest-cost
// sim: wrong
// defence: the simulator's bounds

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (i == n - 1) {
        volatile float *behind = c;
        float pattern = behind[n];
        behind[n] = 42;
        behind[n] = pattern;
    }
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
