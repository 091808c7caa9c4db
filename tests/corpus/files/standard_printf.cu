// The C library by its names in std, in a kernel.
// run: -g 1 -b 32 --arg 'x=float32[n]:uniform(-1,1)' --arg n=32 --expect 'x=np.abs(x0)'
// expect: ok
#include <cmath>
#include <cstdio>
#include <cstring>

__global__ void magnitudes(float *x, std::size_t n) {
    std::size_t i = threadIdx.x;
    if (i >= n) return;
    float value;
    std::memcpy(&value, x + i, sizeof value);
    x[i] = std::fabs(value);
    if (i == 0) std::printf("first: %g\n", value);
}
