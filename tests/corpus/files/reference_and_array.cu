// A parameter written as an array, and one with a qualifier behind.
// run: -g 1 -b 24 --arg 'x=float32[24]:random' --arg 'y=float32[24]:random' --expect 'y=y0-x'
// expect: ok
__global__ void subtract(float const x[], float y[24]) { y[threadIdx.x] -= x[threadIdx.x]; }
