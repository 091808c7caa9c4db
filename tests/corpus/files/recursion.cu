// A recursive function on the device.
// run: -g 1 -b 8 --arg 'x=int32[8]:arange' --expect 'x=np.array([0,1,1,2,3,5,8,13],dtype=np.int32)'
// expect: ok
__device__ __noinline__ int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
__global__ void fibonacci(int *x) { x[threadIdx.x] = fib(x[threadIdx.x]); }
