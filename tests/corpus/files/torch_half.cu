// The 16-bit types of PyTorch's headers, which compute in float and round once; PyTorch is not there.
// run: -k 'residual_gate<at::BFloat16>' -g 4 -b 64 --arg 'x=bfloat16[n]:uniform(-2,2)' --arg 'bias=float16[n]:random'
//      --arg 'out=bfloat16[n]:empty' --arg 'total=float32[1]:zeros' --arg n=200
//      --expect 'out=np.where(x>0,x,x*0.25)+bias' --expect 'total=np.sum(bias)' --rtol 2e-2 --atol 2e-2
// expect: ok
#include <ATen/ATen.h>
#include <c10/cuda/CUDAException.h>
typedef at::Half fp16;

template <typename scalar_t>
__global__ void C10_LAUNCH_BOUNDS_1(256) residual_gate(const scalar_t *x, const fp16 *__restrict__ bias, scalar_t *out,
                                                       float *total, int n) {
    using compute = at::opmath_type<scalar_t>;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    scalar_t gated = x[i] > scalar_t(0) ? x[i] : scalar_t(x[i] * 0.25f);
    compute sum = static_cast<compute>(gated);
    sum += bias[i];
    out[i] = static_cast<scalar_t>(sum);
    gpuAtomicAdd(total, float(bias[i]));
}
