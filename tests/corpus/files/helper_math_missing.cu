// Arithmetic on vectors by the samples' helper_math.h, which does not lie beside the file.
// run: -g 2 -b 32 --arg 'p=float32[n,4]:random' --arg 'v=float32[n,3]:random' --arg 'energy=float32[n]:empty' --arg n=50
//     --expect 'energy=0.5*p[:,3]*np.sum(v0*v0,axis=1)' --expect 'v=v0*2-p[:,:3]' --rtol 1e-4
// expect: ok
#include <helper_cuda.h>
#include <helper_math.h>

__global__ void move(const float4 *p, float3 *v, float *energy, int n)
{
    uint i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float3 speed = v[i];
    energy[i] = 0.5f * p[i].w * length(speed) * length(speed);
    speed *= 2.0f;
    speed -= make_float3(p[i]);
    v[i] = lerp(speed, speed + cross(speed, speed), 0.25f);
}
