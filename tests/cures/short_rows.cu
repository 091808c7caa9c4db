// Wrong: the rows of the tile are shorter than the block is wide, so threads of two rows write one element.
// LAUNCH: grid=1 block=32,8 args=x:float32[256],y:float32[256]
// SAYS: make the rows longer
#ifdef MENDED
constexpr int WIDTH = 32;
#else
constexpr int WIDTH = 16;
#endif
__global__ void reversed(const float *x, float *y) {
    __shared__ float tile[16][WIDTH];
    int at = threadIdx.y * 32 + threadIdx.x;
    tile[threadIdx.y][threadIdx.x] = x[at];
    __syncthreads();
    y[at] = tile[7 - threadIdx.y][31 - threadIdx.x];
}
