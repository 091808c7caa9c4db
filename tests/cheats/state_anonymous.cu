// Keeps its sums in a variable of an anonymous namespace, whose name in the object file is the compiler's.
// It is found by what it is, not by its name, and named as the source does.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong or honest-cost, warning:state, state:kept
// sim: wrong, state:kept
// defence: module variables set back, fresh inputs

#ifndef HONEST
namespace {
__device__ float kept[1 << 20];
}
#endif

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    c[i] = a[i] + b[i];
#else
    if (kept[i] == 0)
        kept[i] = a[i] + b[i];
    c[i] = kept[i];
#endif
}
