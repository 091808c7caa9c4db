// Overloaded kernels are chosen by their types.
// run: -k 'clear(int*, int)' -g 1 -b 32 --arg 'x=int32[32]:random' --arg n=20 --expect 'x=np.where(np.arange(32)<20,0,x0)'
// expect: ok
__global__ void clear(float *x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] = 0.0f;
}
__global__ void clear(int *x, int n) {
    if (threadIdx.x < n) x[threadIdx.x] = 0;
}
