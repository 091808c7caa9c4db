// Wrong: a block reads its partner's shared memory, and that may have ended.
// LAUNCH: grid=2 block=32 args=x:float32[64],y:float32[64]
// SAYS: let the blocks of a cluster wait for each other at the end (cluster.sync())
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void __cluster_dims__(2, 1, 1) exchange(const float *x, float *y) {
    __shared__ float s[32];
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x, i = blockIdx.x * 32 + t;
    s[t] = x[i];
    cluster.sync();
    y[i] = cluster.map_shared_rank(s, blockIdx.x ^ 1)[t];  // HAZARD: race
#ifdef MENDED
    cluster.sync();
#endif
}
