// The function that is applied comes from the command line.
// run: -D 'F(x)=((x)*(x)+1)' -g 1 -b 64 --arg 'x=float32[64]:random' --expect 'x=x0*x0+1'
// expect: ok
#ifndef F
#define F(x) (x)
#endif
__global__ void map(float *x) { x[threadIdx.x] = F(x[threadIdx.x]); }
