// CUDA's own complex numbers.
// run: -g 1 -b 32 --arg 'z=complex64[32]:random' --arg 'w=complex64[32]:empty' --expect 'w=z*z'
// expect: ok
#include <cuComplex.h>
__global__ void squares(const cuFloatComplex *z, cuFloatComplex *w) { w[threadIdx.x] = cuCmulf(z[threadIdx.x], z[threadIdx.x]); }
