// The error macro that every course has, used in a template.
// run: -k 'scale<float>' -g 'cdiv(n,32)' -b 32 --arg 'x=float32[n]:ones' --arg f=3 --arg n=100 --expect 'x=3*x0'
// expect: ok
#include <cstdio>
#include <cstdlib>

#define gpuErrchk(ans) { gpuAssert((ans), __FILE__, __LINE__); }
inline void gpuAssert(cudaError_t code, const char *file, int line, bool abort = true) {
    if (code != cudaSuccess) {
        fprintf(stderr, "GPUassert: %s %s %d\n", cudaGetErrorString(code), file, line);
        if (abort) exit(code);
    }
}

template <typename T> __global__ void scale(T *x, T f, size_t n) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= f;
}

template <typename T> void launch(T *x, T f, size_t n) {
    scale<T><<<(n + 31) / 32, 32>>>(x, f, n);
    gpuErrchk(cudaPeekAtLastError());
    gpuErrchk(cudaDeviceSynchronize());
}

template void launch<float>(float *, float, size_t);
template void launch<double>(double *, double, size_t);
