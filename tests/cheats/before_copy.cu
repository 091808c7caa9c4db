// Puts its result where the tool keeps the first values of an array that is both read and written, on the page behind
// the array. Set back to that, the array is right before the next launch, which tells a result by its size.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:random
// run: --expect 'y=x+y0+2' --bytes 12*n
// size: gpu=262144 sim=10007
// gpu: wrong or failed
// sim: wrong
// defence: copies looked at

extern "C" __global__ void add(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] += x[i] + 2;
#else
    if (y[i] >= 2)
        return;
    y[i] += x[i] + 2;
    ((volatile float *)y)[i + (1 << 19) - (1 << 14)] = y[i];  // the array begins 64 KiB behind the page's start
#endif
}
