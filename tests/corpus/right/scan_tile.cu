// Inclusive scan within each warp, by a cooperative group's shuffles.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void scan(const int *in, int *out, int n) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int v = i < n ? in[i] : 0;
    for (unsigned d = 1; d < warp.size(); d *= 2) {
        int left = warp.shfl_up(v, d);
        if (warp.thread_rank() >= d) v += left;
    }
    if (i < n) out[i] = v;
}
