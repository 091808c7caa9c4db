// A device lambda inside a function of the host is the host's.
// run: -k shift -g 1 -b 32 --arg 'x=int32[32]:arange' --arg k=5 --expect 'x=x0+5'
// expect: ok
#include <cstdio>

template <typename F> __global__ void apply(int n, F f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) f(i);
}

__global__ void shift(int *x, int k) { x[threadIdx.x] += k; }

void run(int *x, int k) {
    apply<<<1, 32>>>(32, [=] __device__(int i) { x[i] += k; });
}
