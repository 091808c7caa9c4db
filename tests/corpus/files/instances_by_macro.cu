// Explicit instances of the host's templates, written by a macro that brings its own semicolons.
// run: -k 'filters::combine<filters::Largest>' -g 'cdiv(n,128)' -b 128 --arg 'out=float32[n]:random'
//      --arg 'in=float32[n]:random' --arg n=1000 --expect 'out=np.maximum(out0,in)'
// expect: ok
#include <vector>

namespace filters {

struct Difference {
    __device__ float operator()(float a, float b) const { return a - b; }
};
struct Largest {
    __device__ float operator()(float a, float b) const { return a > b ? a : b; }
};

template <typename Op>
__global__ void combine(float *out, const float *in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = Op()(out[i], in[i]);
}

template <typename Op>
void combineAll(float *out, const std::vector<float *> &layers, const Extent &extent) {
    for (float *layer : layers) combine<Op><<<(extent.n + 127) / 128, 128>>>(out, layer, extent.n);
}
template <typename Op>
void combineTwo(float *out, float *layer, const Extent &extent) {
    combine<Op><<<(extent.n + 127) / 128, 128>>>(out, layer, extent.n);
}

#define INSTANCES(op)                                                                               \
    template void combineAll<op>(float *out, const std::vector<float *> &layers, const Extent &extent); \
    template void combineTwo<op>(float *out, float *layer, const Extent &extent);

INSTANCES(Difference)
INSTANCES(Largest)

}  // namespace filters
