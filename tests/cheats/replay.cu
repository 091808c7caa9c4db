// Keeps the first product in a module variable and copies it in every later launch.
// Set back before every sample, it finds nothing kept and must multiply; not set back, it is wrong on fresh inputs.
// run: matmul --size {size} {size} {size}
// size: gpu=512 sim=48
// gpu: wrong or honest-cost, warning:state, state:kept
// sim: wrong, state:kept
// caches: cold hot
// defence: module variables set back, fresh inputs

#ifndef HONEST
__device__ float kept[1 << 18];  // products of [0, 1) are over 0: 0 is nothing kept
#endif

extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int k, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;
    int i = row * n + col;
#ifndef HONEST
    if (kept[i] != 0) {
        c[i] = kept[i];
        return;
    }
#endif
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += a[row * k + j] * b[j * n + col];
    c[i] = sum;
#ifndef HONEST
    kept[i] = sum;
#endif
}
