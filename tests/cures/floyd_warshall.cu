// Wrong: relaxations of one turn read what another turn writes.
// LAUNCH: grid=1 block=32,32 args=w:int32[1024],d:int32[1024]
// SAYS: Put __syncthreads() at the end of the body of the loop in line 9, after line 12, outside of the condition in line
__global__ void paths(const int *w, int *d) {
    __shared__ int s[32][32];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = x == y ? 0 : w[(y * 7 + x * 13) % 91] + 1;
    __syncthreads();
    for (int k = 0; k < 32; ++k) {
        int via = s[y][k] + s[k][x];  // HAZARD: race
        if (via < s[y][x])
            s[y][x] = via;  // HAZARD: race
#ifdef MENDED
        __syncthreads();
#endif
    }
    __syncthreads();
    d[y * 32 + x] = s[y][x];
}
