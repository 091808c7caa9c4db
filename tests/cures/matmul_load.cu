// Wrong: the tiles are used before all of them is loaded.
// LAUNCH: grid=1 block=16,16 args=a:float32[1024],b:float32[1024],c:float32[256],n:int32=32
// SAYS: Put __syncthreads() between line 11 and line 15
__global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16];
    __shared__ float bs[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += 16) {
        as[y][x] = a[y * n + k0 + x];
        bs[y][x] = b[(k0 + y) * 16 + x];
#ifdef MENDED
        __syncthreads();
#endif
        for (int k = 0; k < 16; ++k)
            sum += as[y][k] * bs[k][x];  // HAZARD: race
        __syncthreads();
    }
    c[y * 16 + x] = sum;
}
