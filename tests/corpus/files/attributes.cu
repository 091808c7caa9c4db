// Attributes of every kind around the kernel's head.
// run: -g 2 -b 64 --arg 'x=float32[128]:random' --arg 'y=float32[128]:empty' --expect 'y=x'
// expect: ok
[[maybe_unused]] static __device__ int unused_count;

extern "C" __global__ void __launch_bounds__(64, 2)
    move(const float *__restrict__ x, [[maybe_unused]] float *__restrict__ y) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = __ldg(&x[blockIdx.x * blockDim.x + threadIdx.x]);
}
