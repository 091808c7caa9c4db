// Cooperative groups: a tile of a warp reduces itself.
// run: -g 4 -b 64 --arg 'in=float32[256]:random' --arg 'out=float32[8]:empty'
//      --expect 'out=np.sum(np.reshape(in,(8,32)),axis=1)'
// expect: ok
// slow: seconds of compiling or of checking
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;

__global__ void tiles(const float *in, float *out) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> tile = cg::tiled_partition<32>(block);
    int i = block.group_index().x * block.size() + block.thread_rank();
    float sum = cg::reduce(tile, in[i], cg::plus<float>());
    if (tile.thread_rank() == 0) out[i / 32] = sum;
}
