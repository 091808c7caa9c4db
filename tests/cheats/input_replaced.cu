// Replaces a const input by the output in the first launch, and copies it from then on: what was compared and what
// follows are right, and nothing changes any more. Inputs must be compared with what they were before any launch.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --arg zero=0 --expect 'y=x+2' --bytes 8*n
// size: gpu=1048576 sim=10007
// gpu: wrong
// sim: wrong
// defence: const inputs compared with those before the first launch

extern "C" __global__ void slowly(int n, const float *x, float *y, float zero)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    float value = x[i];
#ifndef HONEST
    if (value >= 2) {
        y[i] = value;
        return;
    }
#endif
    for (int step = 0; step < 400; step++)
        value = fmaf(value, 1 + zero, zero);
    y[i] = value + 2;
#ifndef HONEST
    ((float *)x)[i] = value + 2;
#endif
}
