// A class template of an absent library by value: no number stands for it, and the kernel beside it takes numbers.
// run: -k fill -g 1 -b 32 --arg n=32
// expect: refused: takes 'Grid2<float> grid' by value, a struct whose members are not known here
// then: -k plain -g 1 -b 32 --arg 'out=float32[n]:empty' --arg n=32 --expect 'out=np.arange(n)'
#include "absent/grid2.h"

__global__ void fill(Grid2<float> grid, int n)
{
    if (threadIdx.x < n) grid.set(threadIdx.x, 0, 1.0f);
}

__global__ void plain(float *out, int n)
{
    if (threadIdx.x < n) out[threadIdx.x] = threadIdx.x;
}
