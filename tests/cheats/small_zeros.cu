// Zeros, where all that is expected is smaller than the absolute tolerance: right by the letter. It is said that zeros
// would pass, of the honest twin as well.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=x*1e-7' --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: ok, warning:tolerance
// sim: ok, warning:tolerance
// honest-may: warning:tolerance
// defence: a tolerance that accepts zeros named

extern "C" __global__ void scaled(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] = x[i] * 1e-7f;
#else
    y[i] = 0;
#endif
}
