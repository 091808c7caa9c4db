// Particles as a struct of arrays, with limits as vectors inside another struct.
// run: -k advance -g cdiv(n,64) -b 64 --arg
//      'p={x: float32[n]:random, y: float32[n]:random, vx: float32[n]:random, vy: float32[n]:random}' --arg
//      'c={lo: {0.25, 0.25}, hi: {0.75, 0.75}, dt: 0.5, bounce: true}' --arg n=200 --expect
//      'p_x=np.clip(p_x0+0.5*p_vx0,0.25,0.75)'
// expect: ok
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <fmt/core.h>
namespace sim {
struct Particles { float *x, *y, *vx, *vy; };
struct Config { float2 lo, hi; float dt; bool bounce; };
__device__ __forceinline__ float clampf(float v, float lo, float hi) { return fminf(fmaxf(v, lo), hi); }
__global__ void advance(Particles p, const Config c, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    float x = p.x[i] + c.dt * p.vx[i], y = p.y[i] + c.dt * p.vy[i];
    if (c.bounce) { if (x < c.lo.x || x > c.hi.x) p.vx[i] = -p.vx[i]; if (y < c.lo.y || y > c.hi.y) p.vy[i] = -p.vy[i]; }
    p.x[i] = clampf(x, c.lo.x, c.hi.x); p.y[i] = clampf(y, c.lo.y, c.hi.y);
}
}
int main() { thrust::device_vector<float> d(10); sim::Particles p{thrust::raw_pointer_cast(d.data())}; sim::advance<<<1, 64>>>(p, {}, 0); fmt::print("{}\n", d.size()); }
