// printf and assert in a kernel.
// run: -g 1 -b 4 --arg 'x=int32[4]:arange' --expect 'x=x0+1'
// expect: ok
#include <cassert>
#include <cstdio>
__global__ void talk(int *x) {
    assert(x[threadIdx.x] < 4);
    if (threadIdx.x == 0) printf("block %d of %d\n", blockIdx.x, gridDim.x);
    x[threadIdx.x]++;
}
