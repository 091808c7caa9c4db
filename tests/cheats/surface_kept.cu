// Keeps a mark in a surface that nothing is expected of, and stays idle once it is there.
// The array of a surface gets its first content before every sample, as memory does.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --arg spare=surface(uint32[32,1024]:zeros) --expect 'y=2*x' --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost
// sim: ok
// defence: every output poisoned before every sample

extern "C" __global__ void twice(int n, const float *x, float *y, cudaSurfaceObject_t spare)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int column = 4 * (blockIdx.x % 1024), row = blockIdx.x / 1024;
#ifdef HONEST
    if (threadIdx.x == 0)
        surf2Dwrite(surf2Dread<unsigned>(spare, column, row) & 0, spare, column, row);
#else
    __shared__ bool seen;
    if (threadIdx.x == 0) {
        seen = surf2Dread<unsigned>(spare, column, row) == 1;
        surf2Dwrite(1u, spare, column, row);
    }
    __syncthreads();
    if (seen)
        return;
#endif
    if (i < n)
        y[i] = 2 * x[i];
}
