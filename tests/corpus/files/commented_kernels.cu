// Old kernels are commented out or behind #if 0; one is left.
// run: -g 1 -b 32 --arg 'x=int32[32]:arange' --expect 'x=x0*2'
// expect: ok
// __global__ void first(int *x) { x[0] = 1; }
/* __global__ void second(int *x) {
    x[0] = 2;
} */
#if 0
__global__ void third(float *x) { x[0] = 3 }
#endif
#ifdef NEVER
__global__ void fourth(float *x) { x[0] = 4; }
#endif

__global__ void fifth(int *x) { x[threadIdx.x] <<= 1; }
