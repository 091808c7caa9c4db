// Takes a float64 exponential in float32, within a tolerance wide enough. The result says in which arithmetic.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float64[n]:random --arg y=float64[n]:empty
// run: --expect 'y=np.exp(x)' --bytes 16*n --rtol 1e-5
// size: gpu=16777216 sim=10007
// gpu: ok, arithmetic:float32
// sim: ok, arithmetic:float32
// defence: arithmetic named

extern "C" __global__ void exponential(int n, const double *x, double *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
#ifdef HONEST
        y[i] = exp(x[i]);
#else
        y[i] = expf((float)x[i]);
#endif
}
