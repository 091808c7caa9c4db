// One level of a breadth-first search: each node at `depth` gives its neighbours that nobody has reached the next level.
extern "C" __global__ void expand(const int *first, const int *to, int *level, int *grew, int nodes, int depth)
{
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes || level[node] != depth)
        return;
    for (int edge = first[node]; edge < first[node + 1]; edge++)
        if (level[to[edge]] < 0) {
            atomicExch(&level[to[edge]], depth + 1);
            atomicExch(grew, 1);
        }
}

// The same with levels of its own for what is reached, so that no thread reads what another one writes.
extern "C" __global__ void reach(const int *first, const int *to, const int *level, int *next, int *grew, int nodes,
                                 int depth)
{
    int node = blockIdx.x * blockDim.x + threadIdx.x;
    if (node >= nodes || level[node] != depth)
        return;
    for (int edge = first[node]; edge < first[node + 1]; edge++)
        if (level[to[edge]] < 0) {
            next[to[edge]] = depth + 1;
            *grew = 1;
        }
}
