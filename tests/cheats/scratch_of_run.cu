// Keeps a mark in an output that nothing is expected of, and stays idle once it is there.
// Every array that is not an input is poisoned before every sample, compared or not.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --arg spare=uint32[1024]:empty --expect 'y=2*x' --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost
// sim: ok
// defence: every output poisoned before every sample

extern "C" __global__ void twice(int n, const float *x, float *y, unsigned *spare)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef HONEST
    if (i < 1024)
        spare[i] = 0;
#else
    __shared__ bool seen;
    if (threadIdx.x == 0) {
        seen = spare[blockIdx.x % 1024] == blockIdx.x / 1024;
        spare[blockIdx.x % 1024] = blockIdx.x / 1024;
    }
    __syncthreads();
    if (seen)
        return;
#endif
    if (i < n)
        y[i] = 2 * x[i];
}
