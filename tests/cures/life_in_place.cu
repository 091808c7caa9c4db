// Wrong: a game of life in shared memory reads neighbours that are overwritten.
// LAUNCH: grid=1 block=16,16 args=x:int32[256],turns:int32=2
// SAYS: Put __syncthreads() between line 12 and line 16
__global__ void life(int *x, int turns) {
    __shared__ int s[18][18];
    int c = threadIdx.x + 1, r = threadIdx.y + 1;
    for (int i = threadIdx.y * 16 + threadIdx.x; i < 324; i += 256) s[i / 18][i % 18] = 0;
    __syncthreads();
    s[r][c] = x[(r - 1) * 16 + c - 1] & 1;
    __syncthreads();
    for (int k = 0; k < turns; ++k) {
        int n = s[r - 1][c] + s[r + 1][c] + s[r][c - 1] + s[r][c + 1];
#ifdef MENDED
        __syncthreads();
#endif
        s[r][c] = n == 3 || (n == 2 && s[r][c]);  // HAZARD: race
        __syncthreads();
    }
    x[(r - 1) * 16 + c - 1] = s[r][c];
}
