// Reads its output first and stores only where that is not right already.
// With the output poisoned before every sample it stores all of it, and has read it besides.
// run: transpose --size {size} {size}
// size: gpu=4096 sim=96
// gpu: wrong or honest-cost
// sim: ok
// defence: output poisoned before every sample

extern "C" __global__ void turn(const float *in, float *out, int nx, int ny)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= nx || y >= ny)
        return;
    float value = in[(size_t)y * nx + x];
#ifdef HONEST
    out[(size_t)x * ny + y] = value;
#else
    if (out[(size_t)x * ny + y] != value)
        out[(size_t)x * ny + y] = value;
#endif
}
