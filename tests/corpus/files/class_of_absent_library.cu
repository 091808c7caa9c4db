// A class derived from one of a library that is not there, and functions with its types.
// run: -k relu -g 'cdiv(n,64)' -b 64 --arg 'x=float32[n]:random' --arg n=200 --expect 'x=np.maximum(x0,0)*1'
// expect: ok
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void relu(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = fmaxf(x[i], 0.0f);
}

class Relu : public torch::autograd::Function<Relu> {
  public:
    static torch::Tensor forward(torch::autograd::AutogradContext *ctx, torch::Tensor x) {
        relu<<<(x.numel() + 63) / 64, 64, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(), x.numel());
        return x;
    }
};

torch::Tensor relu_cuda(torch::Tensor x) {
    TORCH_CHECK(x.is_cuda(), "x must be on the GPU");
    return Relu::apply(x);
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("relu", &relu_cuda, "relu"); }
