// Wrong: <= in y lets in a row after the last one.
// LAUNCH: grid=2,2 block=16,16 args=in:float32[600],out:float32[600],nx:int32=30,ny:int32=20
__global__ void copy(const float *in, float *out, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y <= ny)
        out[y * nx + x] = in[y * nx + x];        // HAZARD: out-of-bounds
}
