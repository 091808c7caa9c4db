// Lambdas that say they run on the device: in a kernel, in a function of both sides, and by a macro, as libraries for
// several back ends have them.
// run: -k smooth -g 2 -b 64 --arg 'x=float32[128]:random' --arg 'y=float32[128]:zeros' --arg n=128
//      --expect 'y=np.concatenate([x[:1], (x[:-2]+x[1:-1]+x[2:])/3, x[-1:]])*2+1'
// expect: ok
#include <cuda_runtime.h>
#include <thrust/device_vector.h>
#include <thrust/for_each.h>

#define ON_BOTH [=] __host__ __device__

template <class Body> __host__ __device__ inline void for_own(int i, int n, Body body) {
    if (i < n) body(i);
}

__host__ __device__ inline float twice(float v) {
    auto sum = ON_BOTH(float a) { return a + a; };
    return sum(v);
}

__global__ void smooth(const float *x, float *y, int n) {
    auto mean = [x] __device__ (int i) { return (x[i - 1] + x[i] + x[i + 1]) / 3.0f; };
    for_own(blockIdx.x * blockDim.x + threadIdx.x, n, [=] __device__ __host__ (int i) {
        y[i] = twice(i == 0 || i == n - 1 ? x[i] : mean(i)) + 1.0f;
    });
}

int main() {
    thrust::device_vector<float> x(128), y(128);
    float *raw = thrust::raw_pointer_cast(x.data());
    thrust::for_each_n(thrust::counting_iterator<int>(0), 128, [=] __device__ (int i) { raw[i] = i; });
    smooth<<<2, 64>>>(raw, thrust::raw_pointer_cast(y.data()), 128);
    return cudaDeviceSynchronize();
}
