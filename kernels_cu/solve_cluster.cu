// Linear system: a cluster of blocks eliminates a panel.
//
// CLUSTER blocks on as many multiprocessors write into each other's shared memory (compute capability 9.0). Their
// registers hold CLUSTER times as many elements: of 8192 rows 16 columns, while one block holds 4.
//
//     block 0   warps' best -> block's best --\                          /--> block 0   cluster's best, subtract
//     block 1   warps' best -> block's best ---> offers of all blocks ----> block 1   cluster's best, subtract
//     ...                                       in the memory of each
//
// A step has a barrier of the block and one of the cluster. The offers of successive columns alternate between two
// places. The rest is the rung lower, in left.cuh.

#include "left.cuh"

#define CLUSTER 8                   // blocks of a cluster
#define MEMBERS (CLUSTER * PANEL)   // threads of a cluster
#ifndef ALONE
#define ALONE 4                     // a panel that needs at most so many rows a thread is eliminated by one block
#endif
#if __CUDA_ARCH__ >= 900
#define IN_CLUSTERS __cluster_dims__(CLUSTER, 1, 1)
#else
#define IN_CLUSTERS
#endif

// Returns the number of the block in its cluster.
__device__ __forceinline__ unsigned cluster_rank()
{
    unsigned rank = 0;
#if __CUDA_ARCH__ >= 900
    asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
#endif
    return rank;
}

// Waits for all threads of the cluster, and makes their writes visible to all of them.
__device__ __forceinline__ void cluster_barrier()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}

// Returns the address in the shared memory of block `rank` that corresponds to `mine` in this block's.
template <typename E>
__device__ __forceinline__ E *in_block(E *mine, unsigned rank)
{
    E *there = mine;
#if __CUDA_ARCH__ >= 900
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(mine), "r"(rank));
#endif
    return there;
}

// Eliminates a panel with a cluster; each thread holds HOLDS rows in registers.
template <int HOLDS, int COLS>
__device__ __forceinline__ void eliminate_in_cluster(const T *ab, T *strip, T *upper, T *inverse, int *place,
                                                     int *pivot, int n, int pitch, int col, int cols, int outer,
                                                     int outer_cols)
{
    const int warps = PANEL / 32, parts = 32 / CLUSTER;
    __shared__ Peak peaks[2][warps];                             // of the block's warps
    __shared__ __align__(16) T lines[2][warps][COLS];
    __shared__ Peak offers[2][CLUSTER];                          // of the cluster's blocks
    __shared__ __align__(16) T offered[2][CLUSTER][COLS];
    __shared__ int chosen[COLS];

    int idx = threadIdx.x, lane = idx % 32, warp = idx / 32, left = n - col;
    int rank = cluster_rank(), member = rank * PANEL + idx;
    T held[HOLDS][COLS];
    unsigned unused = load_rows<MEMBERS>(held, strip + col, n, left, cols, member);
    cluster_barrier();  // wait until all blocks have begun
#pragma unroll 1
    for (int t = 0; t < cols; t++) {
        offer_row<MEMBERS>(peaks[t % 2][warp], lines[t % 2][warp], held, unused, member);
        __syncthreads();

        // One warp writes the block's best candidate and its row into all blocks, 32 / CLUSTER lanes into each
        if (warp == 0) {
            Peak best = warp_peak(peaks[t % 2][lane % warps]);
            int to = lane / parts, part = lane % parts;
            if (best.size >= 0)
                for (int v = part; v < COLS / VEC; v += parts)
                    *(uint4 *)in_block(&offered[t % 2][rank][v * VEC], to) =
                        *(const uint4 *)&lines[t % 2][best.at % PANEL / 32][v * VEC];
            if (part == 0)
                *in_block(&offers[t % 2][rank], to) = best;
        }
        cluster_barrier();

        // The best candidate of all blocks and its row
        Peak best = warp_peak(offers[t % 2][lane % CLUSTER]);
        use_row<MEMBERS>(held, unused, offered[t % 2][best.at % MEMBERS / PANEL], best, member);
        if (idx == 0)
            chosen[t] = best.at;
    }
    for (int t = cols; t < COLS; t++)
        move_columns(held);
    store_rows<MEMBERS>(held, strip + col, n, left, cols, member);
    cluster_barrier();  // wait until the strip is complete
    if (rank == 0)
        end_panel(ab, strip, upper, inverse, place, pivot, n, pitch, col, cols, outer, outer_cols, chosen);
}

// Eliminates a panel with the registers of a cluster of blocks, so that it is wide however many rows are left.
// Fewer panels mean fewer passes over the OUTER columns and fewer launches: 33 instead of 41 ms for n = 8192. One block
// still eliminates a panel that needs at most ALONE rows a thread, except the first: a cluster's barrier takes longer
// than a block's. What remains: while a panel is eliminated, the other multiprocessors wait.
extern "C" __global__ void IN_CLUSTERS __launch_bounds__(PANEL)
solve_panel_cluster(const T *ab, T *strip, T *upper, T *inverse, int *place, int *pivot, int n, int pitch, int col,
                    int cols, int outer, int outer_cols, int holds)
{
#define CLUSTER_OF(holds) \
    eliminate_in_cluster<holds, COLUMNS(holds)>(ab, strip, upper, inverse, place, pivot, n, pitch, col, cols, outer, \
                                                outer_cols)
    switch (holds) {
    case 1: CLUSTER_OF(1); break;
    case 2: CLUSTER_OF(2); break;
    case 4: CLUSTER_OF(4); break;
    case 8: CLUSTER_OF(8); break;
    default: CLUSTER_OF(16); break;
    }
}
