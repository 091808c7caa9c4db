// Zeros, where a relative tolerance of one accepts them. It is said that they would pass, of the honest twin as well;
// NaN and infinities pass under no tolerance.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=2*x' --rtol 1 --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: ok, warning:tolerance
// sim: ok, warning:tolerance
// honest-may: warning:tolerance
// defence: a tolerance that accepts zeros named

extern "C" __global__ void twice(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] = 2 * x[i];
#else
    y[i] = 0;
#endif
}
