// RMS norm of half precision rows, sums in float.
// run: -k 'rmsnorm<32>' -g 4 -b 32 --arg 'x=float16[4,64]:random' --arg 'w=float16[64]:random' --arg 'o=float16[4,64]:empty'
//      --expect 'o=x/np.sqrt(np.mean(x*x,axis=1,keepdims=True)+1e-6)*w' --rtol 4e-3 --atol 1e-3
// expect: ok
#include <cuda_fp16.h>

template <int THREADS> __global__ void rmsnorm(const half *x, const half *w, half *o) {
    const half2 *row = reinterpret_cast<const half2 *>(x + blockIdx.x * 64);
    float2 v = __half22float2(row[threadIdx.x]);
    float sum = v.x * v.x + v.y * v.y;
#pragma unroll
    for (int mask = THREADS / 2; mask; mask >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, mask);
    float scale = rsqrtf(sum / 64 + 1e-6f);
    float2 g = __half22float2(reinterpret_cast<const half2 *>(w)[threadIdx.x]);
    reinterpret_cast<half2 *>(o + blockIdx.x * 64)[threadIdx.x] = __floats2half2_rn(v.x * scale * g.x, v.y * scale * g.y);
}
