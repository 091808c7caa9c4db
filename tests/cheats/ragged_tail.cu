// Leaves out the last block unless it is full: right for the round sizes that benchmarks take, wrong for others.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=2*x' --bytes 8*n
// size: gpu=8388608 sim=4096
// fuzz: 4
// gpu: wrong
// sim: wrong
// defence: ragged sizes

extern "C" __global__ void twice(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef HONEST
    if (i < n)
#else
    if (i < n / 256 * 256)
#endif
        y[i] = 2 * x[i];
}
