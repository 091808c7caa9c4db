// Right: blocks of a cluster add to each other's memory, and wait for that before they read it and end.
#include <cooperative_groups.h>
__global__ void __cluster_dims__(2, 1, 1) cluster_waits(const int *x, int *y)
{
    __shared__ int sum, halo[64];
    auto cluster = cooperative_groups::this_cluster();
    int i = blockIdx.x * 64 + threadIdx.x;
    if (threadIdx.x == 0)
        sum = 0;
    halo[threadIdx.x] = x[i];
    cluster.sync();
    unsigned other = 1 - cluster.block_rank();
    atomicAdd(cluster.map_shared_rank(&sum, other), x[i]);
    int near = cluster.map_shared_rank(halo, other)[63 - threadIdx.x];
    auto token = cluster.barrier_arrive();
    near *= 2;
    cluster.barrier_wait(std::move(token));
    y[i] = near + sum;
}
