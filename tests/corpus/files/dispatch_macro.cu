// The dispatch macro of a framework, with a lambda and a switch, in the host's function.
// run: -k 'axpby<float>' -g 2 -b 64 --arg 'x=float32[100]:random' --arg 'y=float32[100]:random' --arg a=2 --arg b=3 --arg n=100
//      --expect 'y=2*x+3*y0'
// expect: ok
#include <torch/all.h>
#include <c10/cuda/CUDAGuard.h>
#define DISPATCH_CASE(...) AT_DISPATCH_CASE(at::ScalarType::Float, __VA_ARGS__) AT_DISPATCH_CASE(at::ScalarType::Half, __VA_ARGS__)
#define DISPATCH(TYPE, NAME, ...) AT_DISPATCH_SWITCH(TYPE, NAME, DISPATCH_CASE(__VA_ARGS__))

template <typename scalar_t> __global__ void axpby(const scalar_t *x, scalar_t *y, scalar_t a, scalar_t b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + b * y[i];
}

void axpby_cuda(torch::Tensor &x, torch::Tensor &y, double a, double b) {
    const at::cuda::OptionalCUDAGuard guard(device_of(x));
    DISPATCH(x.scalar_type(), "axpby", [&] {
        axpby<scalar_t><<<2, 64>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), a, b, x.numel());
    });
}
