// Bodies by tiles; the accelerations are a template of three numbers with operators.
// run: -k integrate -g cdiv(n,64) -b 64 --arg 'pos=float32[n,4]:uniform(0,1)' --arg 'acc=float32[n,3]:zeros' --arg
//      n=100 --arg eps=0.1 --expect
//      'acc=np.sum(((pos[None,:,:3]-pos[:,None,:3])*pos[None,:,3:4]/((np.sum((pos[None,:,:3]-pos[:,None,:3])**2,2,keepdims=True)+0.01)**1.5)),1)'
//      --rtol 1e-3 --atol 1e-4
// expect: ok
#include <vector_types.h>
#include <cmath>
#include <chrono>
template <typename T> struct vec3 {
    T x, y, z;
    __host__ __device__ vec3(T a = 0, T b = 0, T c = 0) : x(a), y(b), z(c) {}
    __host__ __device__ friend vec3 operator-(vec3 a, vec3 b) { return vec3(a.x - b.x, a.y - b.y, a.z - b.z); }
    __host__ __device__ vec3 &operator+=(const vec3 &o) { x += o.x; y += o.y; z += o.z; return *this; }
    __host__ __device__ T dot(const vec3 &o) const { return x * o.x + y * o.y + z * o.z; }
    __host__ __device__ friend vec3 operator*(T s, vec3 v) { return {s * v.x, s * v.y, s * v.z}; }
};
using Vec = vec3<float>;
inline __device__ Vec body(const float4 &a, const float4 &b, float eps2) {
    Vec r = Vec(b.x, b.y, b.z) - Vec(a.x, a.y, a.z);
    const float inv = rsqrtf(r.dot(r) + eps2);
    return (b.w * inv * inv * inv) * r;
}
__global__ void integrate(const float4 *__restrict__ pos, Vec *__restrict__ acc, int n, float eps) {
    extern __shared__ float4 dyn[];
    __shared__ float4 tile[64];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float4 me = i < n ? pos[i] : make_float4(0, 0, 0, 0);
    Vec a;
    for (int t = 0; t < (n + 63) / 64; ++t) {
        const int j = t * 64 + threadIdx.x;
        tile[threadIdx.x] = j < n ? pos[j] : make_float4(0, 0, 0, 0);
        __syncthreads();
#pragma unroll 8
        for (int k = 0; k < 64; ++k) a += body(me, tile[k], eps * eps);
        __syncthreads();
    }
    if (i < n) acc[i] = a;
    (void)dyn;
}
int main() { auto t0 = std::chrono::high_resolution_clock::now(); integrate<<<1, 64>>>(0, 0, 0, 0.f); return (std::chrono::high_resolution_clock::now() - t0).count() > 0; }
