// Symmetric quantisation of rows to eight bits.
// run: -k quantise -g 6 -b 32 --arg 'x=float32[6,32]:random' --arg 'q=int8[6,32]:empty' --arg 'scale=float32[6]:empty'
//      --expect 'scale=np.max(np.abs(x),axis=1)/127'
// expect: ok
#include <cstdint>

__global__ void quantise(const float *x, int8_t *q, float *scale) {
    float v = x[blockIdx.x * 32 + threadIdx.x], top = fabsf(v);
    for (int o = 16; o; o /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, o));
    float s = top / 127.0f;
    if (threadIdx.x == 0) scale[blockIdx.x] = s;
    q[blockIdx.x * 32 + threadIdx.x] = (int8_t)__float2int_rn(v / s);
}
