// Blocks of a cluster and each other's shared memory.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

// Nothing keeps a block until its partner has read from it.
__global__ void __cluster_dims__(2, 1, 1) partner_may_end(const int *x, int *y)
{
    __shared__ int s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[i];
    cluster.sync();
    y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[63 - threadIdx.x];
}

__global__ void __cluster_dims__(2, 1, 1) partner_stays(const int *x, int *y)
{
    __shared__ int s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[i];
    cluster.sync();
    y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[63 - threadIdx.x];
    cluster.sync();
}

// Only the partner's own threads wait for its stores.
__global__ void __cluster_dims__(2, 1, 1) partner_unwaited(const int *x, int *y)
{
    __shared__ int s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    auto cluster = cg::this_cluster();
    s[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[63 - threadIdx.x];
    cluster.sync();
}

__global__ void __cluster_dims__(2, 1, 1) threads_left_the_cluster(const int *x, int *y)
{
    __shared__ int s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    auto cluster = cg::this_cluster();
    if (threadIdx.x >= 40)
        return;
    s[threadIdx.x] = x[i];
    cluster.sync();
    y[i] = cluster.map_shared_rank(s, cluster.block_rank() ^ 1)[39 - threadIdx.x];
    cluster.sync();
}
