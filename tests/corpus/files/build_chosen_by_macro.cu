// A file that is built for one of several makers, and refuses to be built for none.
// run: -g 1 -b 32 --arg 'x=float32[32]:random'
// expect: refused: choose one of its variants by a macro: -D USE_CUDA or -D USE_HIP
// then: -D USE_CUDA -g 1 -b 32 --arg 'x=float32[32]:random' --expect 'x=x0+x0[31]'
#if defined(USE_CUDA)
#define SHUFFLE(value, lane) __shfl_sync(0xffffffffu, value, lane)
#elif USE_HIP
#define SHUFFLE(value, lane) __shfl(value, lane)
#else
#error "choose who makes the GPU"
#endif

__global__ void add_last(float *x) {
    float mine = x[threadIdx.x];
    x[threadIdx.x] = mine + SHUFFLE(mine, 31);
}
