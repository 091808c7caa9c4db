// Without the macro the last branch holds.
// run: -k cube -g 1 -b 64 --arg 'x=int32[64]:arange' --expect 'x=x0*x0*x0'
// expect: ok
#ifdef WIDE
typedef long long number;
#else
typedef int number;
#endif
#if SCALE_BITS > 8 && !defined(WIDE)
#error too wide
#endif

__global__ void cube(number *x) { x[threadIdx.x] = x[threadIdx.x] * x[threadIdx.x] * x[threadIdx.x]; }
