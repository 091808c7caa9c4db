// Keeps a product for each of several inputs, in variables so large that they are set back only once a launch was seen
// to change them, and begins with it at a moment that the first launches hardly meet.
// run: matmul --size {size} {size} {size}
// size: gpu=512 sim=48
// gpu: wrong or honest-cost, warning:state, state:kept
// sim: none
// defence: timed again once state was seen

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
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += a[row * k + j] * b[j * n + col];
    c[i] = sum;
#ifndef HONEST
    if ((now >> 21 & 31) == 0) {  // two milliseconds of sixty
        kept[slot][i] = sum;
        keys[slot][i] = key;
    }
#endif
}
