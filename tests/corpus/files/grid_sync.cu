// A barrier of the whole grid.
// run: -g 4 -b 32 --arg 'x=int32[128]:arange' --arg 'y=int32[128]:empty' --expect 'y=127-x'
// expect: ok
#include <cooperative_groups.h>
__global__ void two_steps(int *x, int *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    cooperative_groups::this_grid().sync();
    int other = y[127 - i];
    cooperative_groups::this_grid().sync();
    y[i] = other;
}
