// Nested namespaces, an alias of one, an anonymous one.
// run: -k engine::detail::fill -g 2 -b 16 --arg 'x=float32[32]:empty' --arg v=2.5 --expect 'x=np.full(32,2.5)'
// expect: ok
namespace engine {
namespace {
__device__ int index() { return blockIdx.x * blockDim.x + threadIdx.x; }
}
namespace detail {
__global__ void fill(float *x, float v) { x[index()] = v; }
}
}
namespace ed = engine::detail;
void go(float *x) { ed::fill<<<2, 16>>>(x, 1.0f); }
