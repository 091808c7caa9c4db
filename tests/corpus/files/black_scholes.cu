// Option prices with the sample's polynomial; the template on the host side is plain C++.
// run: -k call_price -g 2 -b 64 --arg 'price=float32[128]:empty' --arg 'S=float32[128]:ones' --arg X=1 --arg T=1 --arg r=0.0 --arg v=0.2
//      --expect 'price=np.full(128,0.07965567)' --rtol 1e-4
// expect: ok
#include <algorithm>
#include <helper_timer.h>
#define DIV_UP(a, b) (((a) + (b)-1) / (b))

__device__ inline float cnd(float d) { return normcdff(d); }

__global__ __launch_bounds__(128) void call_price(float *__restrict price, const float *__restrict S, float X, float T, float r, float v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float root = sqrtf(T), d1 = __fdividef(logf(S[i] / X) + (r + 0.5f * v * v) * T, v * root), d2 = d1 - v * root;
    price[i] = S[i] * cnd(d1) - X * expf(-r * T) * cnd(d2);
}

template <class Iterator> void host_side(Iterator first, Iterator last) { std::sort(first, last); }
