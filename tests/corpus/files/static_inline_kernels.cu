// static and inline kernels, and words in another order.
// run: -k second -g 1 -b 8 --arg 'x=int32[8]:arange' --expect 'x=x0-1'
// expect: ok
static __global__ void first(int *x) { x[threadIdx.x] += 1; }
static void __global__ second(int *x) { x[threadIdx.x] -= 1; }
inline __global__ void third(int *x) { x[threadIdx.x] = 0; }
