// Wrong: a BFS step pushes with a counter that is not an atomic.
// LAUNCH: grid=4 block=32 args=d:int32[128],queue:int32[128],len:int32[1]
// SAYS: both blocks update one element: give each element to one thread, or update it by an atomic, such as atomicAdd(), atomicMax() or atomicExch()
__global__ void bfs(int *d, int *queue, int *len) {
    int v = blockIdx.x * 32 + threadIdx.x;
    if (d[v] == 2) {
#ifdef MENDED
        int at = atomicAdd(len, 1);
#else
        int at = *len;  // HAZARD: race
        *len = at + 1;  // HAZARD: race
#endif
        queue[at % 128] = v;  // HAZARD: race
    }
}
