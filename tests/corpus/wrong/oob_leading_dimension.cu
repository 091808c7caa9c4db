// Wrong: the columns are taken for the rows' number in the output: right for square matrices only.
// LAUNCH: grid=3,1 block=16,16 args=in:float32[480],out:float32[480],nx:int32=40,ny:int32=12
__global__ void transpose(const float *in, float *out, int nx, int ny) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny) {
        float v = in[y * nx + x];
        out[x * nx + y] = v;                     // HAZARD: out-of-bounds
    }
}
