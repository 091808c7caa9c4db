// A histogram whose bins are spread over the shared memory of a cluster's blocks.
// run: -k cluster_histogram -g 4 -b 128 --shared 256 --arg 'bins=int32[128]:zeros' --arg nbins=128 --arg bins_per_block=64
//      --arg 'input=int32[3000]:integers(-10,140)' --arg size=3000
//      --expect 'bins=np.sum(np.arange(128)[:,None]==np.clip(input,0,127)[None,:],axis=1)'
// expect: ok
#include <cooperative_groups.h>
#include <cstdio>

__global__ void __cluster_dims__(2, 1, 1)
    cluster_histogram(int *bins, const int nbins, const int bins_per_block, const int *__restrict__ input, size_t size) {
    extern __shared__ int smem[];
    namespace cg = cooperative_groups;
    int tid = cg::this_grid().thread_rank();

    cg::cluster_group cluster = cg::this_cluster();
    unsigned int clusterBlockRank = cluster.block_rank();
    int cluster_size = cluster.dim_blocks().x;

    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) smem[i] = 0;

    // All blocks of the cluster have begun, and their bins are zero.
    cluster.sync();

    for (int i = tid; i < size; i += blockDim.x * gridDim.x) {
        int binid = input[i];
        if (binid < 0)
            binid = 0;
        else if (binid >= nbins)
            binid = nbins - 1;
        int dst_block_rank = (int)(binid / bins_per_block);
        int dst_offset = binid % bins_per_block;
        int *dst_smem = cluster.map_shared_rank(smem, dst_block_rank);
        atomicAdd(dst_smem + dst_offset, 1);
    }

    // No block leaves while others use its memory.
    cluster.sync();

    int *lbins = bins + cluster.block_rank() * bins_per_block;
    for (int i = threadIdx.x; i < bins_per_block; i += blockDim.x) atomicAdd(&lbins[i], smem[i]);
    (void)clusterBlockRank;
    (void)cluster_size;
}

int main() {
    int *bins = nullptr, *input = nullptr;
    cudaLaunchConfig_t config = {0};
    config.gridDim = 4;
    config.blockDim = 128;
    config.dynamicSmemBytes = 256;
    cudaLaunchKernelEx(&config, cluster_histogram, bins, 128, 64, (const int *)input, (size_t)3000);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
