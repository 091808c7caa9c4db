// Keeps a product for each of several inputs, which it tells apart by one element of each matrix, and copies it.
// Fresh inputs alone do not stop it where they take turns: their products are all kept. Variables set back do.
// run: matmul --size {size} {size} {size}
// size: gpu=512 sim=48
// gpu: wrong or honest-cost, warning:state, state:kept
// sim: ok, state:kept
// caches: cold hot
// defence: module variables set back

#ifndef HONEST
#define SLOTS 8
__device__ float kept[SLOTS][1 << 18];
__device__ unsigned keys[SLOTS][1 << 18];  // 0: nothing kept
#endif

extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int k, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;
    int i = row * n + col;
#ifndef HONEST
    unsigned key = (__float_as_uint(a[row * k]) * 31 + __float_as_uint(b[col])) | 1;
    int slot = key / 2 % SLOTS;
    if (keys[slot][i] == key) {
        c[i] = kept[slot][i];
        return;
    }
#endif
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += a[row * k + j] * b[j * n + col];
    c[i] = sum;
#ifndef HONEST
    kept[slot][i] = sum;
    keys[slot][i] = key;
#endif
}
