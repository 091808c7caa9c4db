// Bodies in float4, tiles in shared memory, reciprocal square roots.
// run: -k forces -g 2 -b 32 --arg 'bodies=float32[64,4]:zeros' --arg 'acc=float32[64,4]:empty' --arg n=64 --expect 'acc=np.zeros((64,4))'
// expect: ok
#define SOFTENING 1e-9f
typedef struct { float x, y, z, m; } Body;

__device__ float3 interact(float3 a, float4 bi, float4 bj) {
    float3 r = make_float3(bj.x - bi.x, bj.y - bi.y, bj.z - bi.z);
    float d = r.x * r.x + r.y * r.y + r.z * r.z + SOFTENING, inv = rsqrtf(d), s = bj.w * inv * inv * inv;
    a.x += r.x * s;
    a.y += r.y * s;
    a.z += r.z * s;
    return a;
}

__global__ void forces(const float4 *bodies, float4 *acc, int n) {
    __shared__ float4 tile[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float3 a = {0.0f, 0.0f, 0.0f};
    for (int t = 0; t < n; t += 32) {
        tile[threadIdx.x] = bodies[t + threadIdx.x];
        __syncthreads();
        for (int j = 0; j < 32; j++) a = interact(a, bodies[i], tile[j]);
        __syncthreads();
    }
    acc[i] = make_float4(a.x, a.y, a.z, 0.0f);
}
