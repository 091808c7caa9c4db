// A header of kernels is a file like any other.
// run: -k negate -g 1 -b 32 --arg 'x=int32[32]:arange' --expect 'x=-x0'
// expect: ok
#ifndef NEGATE_CUH
#define NEGATE_CUH
#include "common/cuda_base.h"

__global__ void negate(int *x) { x[threadIdx.x] = -x[threadIdx.x]; }

#endif
