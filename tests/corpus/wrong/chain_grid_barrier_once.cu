// Wrong: one barrier of the grid in each turn, where a second must keep the blocks from overtaking.
// LAUNCH: grid=4 block=32 args=a:float32[128],b:float32[128],turns:int32=3
#include <cooperative_groups.h>
__global__ void smooth(float *a, float *b, int turns) {
    int i = blockIdx.x * 32 + threadIdx.x, n = gridDim.x * 32;
    for (int k = 0; k < turns; k++) {
        b[i] = 0.5f * (a[(i + 1) % n] + a[(i + n - 1) % n]);      // HAZARD: race
        cooperative_groups::this_grid().sync();
        a[i] = b[i] + 1.0f;                                       // HAZARD: race
    }
}
