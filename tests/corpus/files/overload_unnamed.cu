// An overloaded name alone is refused with the choices.
// run: -k reset -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=0*x0'
// expect: refused: 'reset\(float\*\)', 'reset\(double\*\)'
// then: -k 'reset(float*)' -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=0*x0'
__global__ void reset(float *x) { x[threadIdx.x] = 0.0f; }
__global__ void reset(double *x) { x[threadIdx.x] = 0.0; }
