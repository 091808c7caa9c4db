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

// One warp waits for its block, the other for the cluster.
__global__ void __cluster_dims__(2, 1, 1) half_at_the_cluster(const int *x, int *y)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x < 32)
        __syncthreads();
    else
        cg::this_cluster().sync();
    y[i] = x[i];
}

__global__ void __cluster_dims__(2, 1, 1) block_left_the_cluster(const int *x, int *y)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    if (blockIdx.x == 1)
        return;
    cg::this_cluster().sync();
    y[i] = x[i];
}

__global__ void __cluster_dims__(2, 1, 1) one_block_waits_again(const int *x, int *y)
{
    int i = blockIdx.x * 64 + threadIdx.x;
    cg::this_cluster().sync();
    if (blockIdx.x == 1)
        cg::this_cluster().sync();
    y[i] = x[i];
}
