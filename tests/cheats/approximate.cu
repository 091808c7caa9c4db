// Divides by the approximate reciprocal of the special function unit where the source could have divided.
// Its largest error in units of the last place stands beside the tolerance, and the arithmetic is named.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=x/(1+x)' --bytes 8*n --rtol 1e-4
// size: gpu=8388608 sim=10007
// gpu: ok, arithmetic:approximate
// sim: ok, arithmetic:approximate
// defence: arithmetic named

extern "C" __global__ void quotient(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
#ifdef HONEST
        y[i] = x[i] / (1 + x[i]);
#else
        y[i] = __fdividef(x[i], 1 + x[i]);
#endif
}
