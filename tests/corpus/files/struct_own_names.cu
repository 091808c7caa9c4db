// A struct by value that names a type itself, with pointers that carry __restrict__.
// run: -g 'cdiv(n,64)' -b 64 --arg n=500 --arg 'p={count: 500, stride: 2, reversed: 0, in: float32[1000]:random, out: y}'
//      --arg 'y=float32[500]:empty' --expect 'y=3*p_in[::2]'
// expect: ok
#include <cstdint>

struct Strided {
    using index_t = uint64_t;
    typedef float value_t;

    int count;
    index_t stride;
    bool reversed;
    value_t *__restrict__ in;
    value_t *__restrict__ out;
};

__global__ void gather_strided(int n, Strided p, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n && i < p.count) p.out[i] = 3 * p.in[(p.reversed ? p.count - 1 - i : i) * p.stride];
}
