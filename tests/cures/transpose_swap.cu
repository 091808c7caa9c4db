// Wrong: a tile is transposed by lines that read and write it.
// LAUNCH: grid=1 block=16,16 args=a:float32[256]
// SAYS: Put __syncthreads() between line 9 and line 13
__global__ void transpose(float *a) {
    __shared__ float s[16][17];
    int x = threadIdx.x, y = threadIdx.y;
    s[y][x] = a[y * 16 + x];
    __syncthreads();
    float v = s[x][y];
#ifdef MENDED
    __syncthreads();
#endif
    s[y][x] = v;  // HAZARD: race
    a[y * 16 + x] = s[y][x];
}
