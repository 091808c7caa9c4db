// Wrong: the tiles are refilled while others still read them.
// LAUNCH: grid=1 block=16,16 args=a:float32[1024],b:float32[1024],c:float32[256],n:int32=32
// SAYS: Put __syncthreads() at the end of the body of the loop in line 8, after line 13
__global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float as[16][16], bs[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    float sum = 0;
    for (int k0 = 0; k0 < n; k0 += 16) {
        as[y][x] = a[y * n + k0 + x];  // HAZARD: race
        bs[y][x] = b[(k0 + y) * 16 + x];  // HAZARD: race
        __syncthreads();
        for (int k = 0; k < 16; ++k)
            sum += as[y][k] * bs[k][x];
#ifdef MENDED
        __syncthreads();
#endif
    }
    c[y * 16 + x] = sum;
}
