// Barriers of cooperative groups.
#include <cooperative_groups.h>
namespace cg = cooperative_groups;

__global__ void half_a_tile(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[t] = x[t];
    if (tile.thread_rank() < 8)
        tile.sync();
    y[t] = s[t ^ 15];
}

__global__ void whole_tiles(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    s[t] = x[t];
    if (tile.meta_group_rank() != 2)
        tile.sync();
    y[t] = tile.meta_group_rank() != 2 ? s[t ^ 15] : s[t];
}

__global__ void lanes_that_came(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    y[t] = 0;
    if (x[t] > 50) {
        auto here = cg::coalesced_threads();
        s[here.thread_rank()] = x[t];
        here.sync();
        y[t] = s[0];
    }
}

__global__ void part_of_the_block(const int *x, int *y)
{
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    if (t < 20)
        cg::this_thread_block().sync();
    y[t] = s[63 - t];
}

__global__ void block_left_the_grid(const int *x, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (blockIdx.x == 3)
        return;
    y[i] = x[i];
    cg::this_grid().sync();
    y[i] += 1;
}

__global__ void threads_left_the_grid(const int *x, int *y, int *z)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x >= 50)
        return;
    y[i] = x[i];
    cg::this_grid().sync();
    z[i] = y[(i + 64) % 256];
}

__global__ void whole_grid(const int *x, int *y, int *z)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i];
    cg::this_grid().sync();
    z[i] = y[(i + 64) % 256];
}

__global__ void returned_from_the_tile(const int *x, int *y)
{
    __shared__ int s[32];
    int t = threadIdx.x;
    auto tile = cg::tiled_partition<16>(cg::this_thread_block());
    if (t >= 28)
        return;
    s[t] = x[t];
    tile.sync();
    y[t] = s[t ^ 1];
}

// One warp waits for its block, the other for the grid.
__global__ void half_at_the_grid(const int *x, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x < 32)
        __syncthreads();
    else
        cg::this_grid().sync();
    y[i] = x[i];
}
