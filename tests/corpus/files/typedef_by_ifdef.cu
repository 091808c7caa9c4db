// The element's type is chosen by a macro of the command line; the first branch is not the one.
// run: -k square -D USE_DOUBLE -g 1 -b 64 --arg 'x=float64[64]:random' --expect 'x=x0*x0'
// expect: ok
#if defined(USE_HALF)
#include <cuda_fp16.h>
typedef half real;
#elif defined(USE_DOUBLE)
typedef double real;
#else
typedef float real;
#endif

__global__ void square(real *x) { x[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x]; }
