// Wrong: the grid has a layer of blocks more than the volume, and only x and y are guarded.
// LAUNCH: grid=1,1,3 block=4,4,2 args=in:int32[64],out:int32[64],nx:int32=4,ny:int32=4
__global__ void copy(const int *in, int *out, int nx, int ny) {
    int x = threadIdx.x, y = threadIdx.y, z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x < nx && y < ny)
        out[(z * ny + y) * nx + x] = in[(z * ny + y) * nx + x];     // HAZARD: out-of-bounds
}
