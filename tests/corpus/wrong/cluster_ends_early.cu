// Wrong: nothing keeps the neighbour from ending before its shared memory is read.
// LAUNCH: grid=4 block=64 args=x:int32[256],y:int32[256]
#include <cooperative_groups.h>
__global__ void __cluster_dims__(2, 1, 1) cluster_ends_early(const int *x, int *y)
{
    __shared__ int tile[64];
    auto cluster = cooperative_groups::this_cluster();
    int i = blockIdx.x * 64 + threadIdx.x;
    tile[threadIdx.x] = x[i];
    cluster.sync();
    const int *far = cluster.map_shared_rank(tile, 1 - cluster.block_rank());
    y[i] = far[63 - threadIdx.x];  // HAZARD: race
}
