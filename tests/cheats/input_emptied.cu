// Sets its input, which is not const, and its output to zero: right, if the expectation read the input afterwards.
// It reads what the input was.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=2*x' --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// defence: expectations from inputs on the host

extern "C" __global__ void twice(int n, float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] = 2 * x[i];
#else
    x[i] = y[i] = 0;
#endif
}
