// A header with what the kernel needs is not there: the error says where it is used and how to name its folder.
// run: -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=x0*3'
// expect: refused: (?s)header_not_there.cu:8: .*"FACTOR" is undefined.*no header <factors.h> .*-I
// then: -D FACTOR=3 -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=x0*3'
#include "factors.h"

__global__ void scaled(float *x) {
    x[threadIdx.x] *= FACTOR;
}
