// Wrong: a block has left before the grid meets.
// LAUNCH: grid=4 block=32 args=x:float32[128],y:float32[128],n:int32=90
// SAYS: Let all threads of the grid come to it, and put the condition around the work
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void steps(float *x, float *y, int n) {
    int i = blockIdx.x * 32 + threadIdx.x;
#ifdef MENDED
    if (blockIdx.x * 32 < n) x[i] = 2 * x[i];
    cg::this_grid().sync();
    if (blockIdx.x * 32 < n) y[i] = x[(i + 32) % 96];
#else
    if (blockIdx.x * 32 >= n) return;
    x[i] = 2 * x[i];
    cg::this_grid().sync();  // HAZARD: deadlock
    y[i] = x[(i + 32) % 96];
#endif
}
