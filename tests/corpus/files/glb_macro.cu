// OpenCL's words by macros, so that one source serves both.
// run: -k twice -g 4 -b 32 --arg 'x=float32[128]:random' --expect 'x=2*x0'
// expect: ok
#define GLB __global__
#define DEV static __device__ __forceinline__
#define GLOBAL_ID (blockIdx.x * blockDim.x + threadIdx.x)
#define GLOBAL
#define KERNEL extern "C" GLB void

DEV float add(float a, float b) { return a + b; }

KERNEL twice(GLOBAL float *x) {
    const unsigned gid = GLOBAL_ID;
    x[gid] = add(x[gid], x[gid]);
}
