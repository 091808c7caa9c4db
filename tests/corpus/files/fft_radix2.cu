// One butterfly pass over pairs, twiddles computed.
// run: -k butterfly -g 1 -b 16 --arg 'z=float32[32,2]:random' --expect 'z=np.concatenate((z0[:16]+z0[16:],z0[:16]-z0[16:]))' --atol 1e-5
// expect: ok
#include <cufft.h>
cufftHandle plan_of_host;

__global__ void butterfly(float2 *z) {
    int k = threadIdx.x;
    float2 a = z[k], b = z[k + 16];
    z[k] = make_float2(a.x + b.x, a.y + b.y);
    z[k + 16] = make_float2(a.x - b.x, a.y - b.y);
}
