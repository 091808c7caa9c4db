// Writes zeros for twice an input of zeros, without a look at it. An input that the user fixed cannot be made afresh:
// the result says so, and a time under that of reading and writing is impossible.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:zeros --arg y=float32[n]:empty
// run: --expect 'y=2*x' --bytes 8*n
// size: gpu=67108864 sim=10007
// gpu: wrong or inputs:fixed
// sim: ok, inputs:fixed
// honest-may: inputs:fixed
// defence: floors, inputs named

extern "C" __global__ void twice(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
#ifdef HONEST
        y[i] = 2 * x[i];
#else
        y[i] = 0;
#endif
}
