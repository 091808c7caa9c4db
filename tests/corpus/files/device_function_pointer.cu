// A table of functions in device memory, called through a pointer.
// run: -g 1 -b 32 --arg 'x=float32[32]:random' --arg which=1 --expect 'x=x0*x0'
// expect: ok
typedef float (*Op)(float);
__device__ float same(float x) { return x; }
__device__ float square(float x) { return x * x; }
__device__ Op table[] = {same, square};
__global__ void apply(float *x, int which) { x[threadIdx.x] = table[which](x[threadIdx.x]); }
