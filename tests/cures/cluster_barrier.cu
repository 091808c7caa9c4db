// Wrong: a block reads its partner's shared memory with no barrier of the cluster.
// LAUNCH: grid=2 block=32 args=x:float32[64],y:float32[64]
// SAYS: put a cluster barrier between
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void __cluster_dims__(2, 1, 1) exchange(const float *x, float *y) {
    __shared__ float s[32];
    cg::cluster_group cluster = cg::this_cluster();
    int t = threadIdx.x, i = blockIdx.x * 32 + t;
    s[t] = x[i];
#ifdef MENDED
    cluster.sync();
#else
    __syncthreads();
#endif
    y[i] = cluster.map_shared_rank(s, blockIdx.x ^ 1)[t];  // HAZARD: race
    cluster.sync();
}
