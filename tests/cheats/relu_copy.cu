// Copies its input and calls it max(x, 0): numbers in [0, 1) have nothing to cut off. Negative ones show it.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=np.maximum(x,0)' --bytes 8*n
// size: gpu=8388608 sim=10007
// fuzz: 4
// gpu: wrong
// sim: wrong
// defence: value classes

extern "C" __global__ void relu(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
#ifdef HONEST
        y[i] = fmaxf(x[i], 0);
#else
        y[i] = x[i];
#endif
}
