// One level of a breadth-first search with a queue and an atomic compare and swap.
// run: -k bfs_level -g 1 -b 32 --arg 'row=int32[33]:arange' --arg 'col=int32[32]:arange' --arg 'level=int32[32]:zeros'
//      --arg 'frontier=int32[32]:arange' --arg count=32 --arg 'next=int32[32]:zeros' --arg 'next_count=int32[1]:zeros' --arg depth=1
//      --expect 'next_count=np.zeros(1,dtype=np.int32)'
// expect: ok
#include <queue>
#include <limits>
#define UNSEEN -1

__global__ void bfs_level(const int *row, const int *col, int *level, const int *frontier, int count, int *next,
                          int *next_count, int depth) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= count) return;
    int u = frontier[t];
    for (int e = row[u]; e < row[u + 1]; ++e)
        if (atomicCAS(&level[col[e]], UNSEEN, depth) == UNSEEN) next[atomicAdd(next_count, 1)] = col[e];
}

std::vector<int> reference(const std::vector<int> &row, const std::vector<int> &col) {
    std::vector<int> level(row.size() - 1, std::numeric_limits<int>::max());
    std::queue<int> q;
    q.push(0);
    return level;
}
