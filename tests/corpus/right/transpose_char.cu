// Transposes bytes through a tile: neighbouring threads write bytes of one shared word, which is not a race.
__global__ void transpose(const unsigned char *in, unsigned char *out, int nx, int ny) {
    __shared__ unsigned char tile[16][20];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    if (x < nx && y < ny) tile[threadIdx.y][threadIdx.x] = in[y * nx + x];
    __syncthreads();
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    if (x < ny && y < nx) out[y * ny + x] = tile[threadIdx.x][threadIdx.y];
}
