// Writes a whole row too many: its guard is off by one in x, and a column of the input is a row of the output.
// The row lands behind the array.
// run: transpose --size {size} 1000
// size: gpu=4096 sim=96
// gpu: wrong
// sim: wrong
// defence: guard zones

extern "C" __global__ void turn(const float *in, float *out, int nx, int ny)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
#ifdef HONEST
    if (x < nx && y < ny)
#else
    if (x <= nx && y < ny)
#endif
        out[(size_t)x * ny + y] = in[(size_t)y * nx + min(x, nx - 1)];
}
