// Stages by cuda::pipeline, whose destructor ends barriers that others have used.
// run: -k staged -g 4 -b 128 --arg 'in=float32[n]:random' --arg 'out=float32[n]:empty' --arg n=4096 --expect
//      'out=np.sqrt(in_)+1'
// expect: ok
// slow: its headers take seconds
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
__device__ void compute(float *out, const float *s) { out[threadIdx.x] = sqrtf(s[threadIdx.x]) + 1.f; }
__global__ void staged(const float *in, float *out, size_t n) {
    constexpr size_t stages = 2;
    auto block = cg::this_thread_block();
    __shared__ float shared[stages * 128];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    auto pipeline = cuda::make_pipeline(block, &state);
    const size_t batches = n / (gridDim.x * 128);
    auto at = [&](size_t b) { return 128 * (blockIdx.x + gridDim.x * b); };
    for (size_t c = 0, f = 0; c < batches; ++c) {
        for (; f < batches && f < c + stages; ++f) {
            pipeline.producer_acquire();
            cuda::memcpy_async(block, shared + (f % stages) * 128, in + at(f), sizeof(float) * 128, pipeline);
            pipeline.producer_commit();
        }
        pipeline.consumer_wait();
        compute(out + at(c), shared + (c % stages) * 128);
        pipeline.consumer_release();
    }
}
int main() { staged<<<4, 128>>>(nullptr, nullptr, 0); }
