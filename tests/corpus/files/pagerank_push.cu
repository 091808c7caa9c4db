// Ranks pushed along edges by atomic additions of doubles.
// run: -k push -g 2 -b 32 --arg 'src=int32[64]:random' --arg 'dst=int32[64]:random' --arg 'rank=float64[100]:ones'
//      --arg 'next=float64[100]:zeros' --expect 'next=np.bincount(dst,minlength=100)*0.85'
// expect: ok
#include <nvToolsExt.h>
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 600
#else
__device__ double atomicAdd(double *address, double val) { return 0; }
#endif

__global__ void push(const int *src, const int *dst, const double *rank, double *next) {
    int e = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(next + dst[e], 0.85 * rank[src[e]]);
}

void step() {
    nvtxRangePushA("step");
    nvtxRangePop();
}
