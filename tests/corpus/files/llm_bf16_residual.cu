// A residual connection in bfloat16, eight values a thread by a packed type.
// run: -g 2 -b 16 --arg 'out=bfloat16[256]:empty' --arg 'a=bfloat16[256]:random' --arg 'b=bfloat16[256]:random' --expect 'out=a+b'
// expect: ok
#include <cuda_bf16.h>
typedef __nv_bfloat16 floatX;

template <class Element> struct alignas(16) Packed128 {
    static constexpr int size = sizeof(int4) / sizeof(Element);
    Element payload[size];
    __device__ Element &operator[](int i) { return payload[i]; }
};
typedef Packed128<floatX> x128;

__device__ x128 load128(const floatX *p) { return *reinterpret_cast<const x128 *>(p); }
__device__ void store128(floatX *p, x128 v) { *reinterpret_cast<x128 *>(p) = v; }

__global__ void residual(floatX *out, const floatX *a, const floatX *b) {
    int at = (blockIdx.x * blockDim.x + threadIdx.x) * x128::size;
    x128 r, x = load128(a + at), y = load128(b + at);
    for (int k = 0; k < x128::size; ++k) r[k] = (floatX)((float)x[k] + (float)y[k]);
    store128(out + at, r);
}
