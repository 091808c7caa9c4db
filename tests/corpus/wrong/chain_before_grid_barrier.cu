// Wrong: what other blocks write is read before the barrier of the grid, not behind it.
// LAUNCH: grid=4 block=32 args=a:float32[128],b:float32[128]
#include <cooperative_groups.h>
__global__ void reverse(float *a, float *b) {
    int i = blockIdx.x * 32 + threadIdx.x;
    a[i] = i + 0.5f;
    b[i] = a[gridDim.x * 32 - 1 - i];            // HAZARD: race
    cooperative_groups::this_grid().sync();
    b[i] += 1.0f;
}
