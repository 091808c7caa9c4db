// Conversion to fp8 and back.
// run: -g 1 -b 32 --arg 'x=float32[32]:ones' --arg 'y=float32[32]:empty' --expect 'y=x'
// expect: ok
#include <cuda_fp8.h>

__global__ void round_trip(const float *x, float *y) {
    __nv_fp8_e4m3 narrow(x[threadIdx.x]);
    y[threadIdx.x] = float(narrow);
}
