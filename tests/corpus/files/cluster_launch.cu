// Clusters that the host's launch asks for: blocks add up each other's sums.
// run: -k cluster_sums -g 8 -b 64 --cluster 4 --arg 'x=float32[512]:random' --arg 'y=float32[8]:empty'
//      --expect 'y=np.repeat(np.sum(np.reshape(x,(2,256)),1),4)'
// expect: ok
#include <cooperative_groups.h>
#include <cuda_runtime.h>
namespace cg = cooperative_groups;

__global__ void cluster_sums(const float *x, float *y) {
    __shared__ float sum;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, x[blockIdx.x * blockDim.x + threadIdx.x]);
    cluster.sync();
    if (threadIdx.x == 0) {
        float total = 0;
        for (unsigned rank = 0; rank < cluster.num_blocks(); rank++) total += *cluster.map_shared_rank(&sum, rank);
        y[blockIdx.x] = total;
    }
    cluster.sync();
}

int main() {
    cudaLaunchConfig_t config = {};
    config.gridDim = 8;
    config.blockDim = 64;
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeClusterDimension;
    attribute[0].val.clusterDim.x = 4;
    attribute[0].val.clusterDim.y = attribute[0].val.clusterDim.z = 1;
    config.attrs = attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, cluster_sums, (const float *)nullptr, (float *)nullptr);
}
