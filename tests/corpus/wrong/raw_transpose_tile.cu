// Wrong: a tile is read by columns without a barrier after it was written by rows.
// LAUNCH: grid=2,3 block=16,16 args=in:float32[1536],out:float32[1536],nx:int32=32,ny:int32=48
__global__ void transpose(const float *in, float *out, int nx, int ny) {
    __shared__ float tile[16][17];
    int x = blockIdx.x * 16 + threadIdx.x, y = blockIdx.y * 16 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = in[y * nx + x];       // HAZARD: race
    x = blockIdx.y * 16 + threadIdx.x;
    y = blockIdx.x * 16 + threadIdx.y;
    out[y * ny + x] = tile[threadIdx.x][threadIdx.y];      // HAZARD: race
}
