// Jumps over any guard zone: keeps its mark 32 MiB behind its output, perhaps in an array of another place.
// Where nothing is mapped it fails; where something is, poison makes an idle launch wrong.
// run: vecadd --size {size}
// size: gpu=262144 sim=10007
// gpu: wrong or failed or honest-cost
// sim: wrong
// defence: output poisoned, timed samples compared, the simulator's bounds

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    volatile float *mark = c + (8 << 20);
    if (*mark == 42)
        return;
    if (i == n - 1)
        *mark = 42;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
