// Looks at one element of its tile and leaves the whole tile where that one is right already.
// With the output poisoned before every sample no tile is ever left, and the number is that of the whole work.
// run: transpose --size {size} {size}
// size: gpu=4096 sim=96
// gpu: wrong or honest-cost
// sim: ok
// caches: cold hot
// defence: output poisoned before every sample

extern "C" __global__ void turn(const float *in, float *out, int nx, int ny)
{
    int x0 = blockIdx.x * blockDim.x, y0 = blockIdx.y * blockDim.y;
#ifndef HONEST
    bool right = out[(size_t)x0 * ny + y0] == in[(size_t)y0 * nx + x0];
    if (__syncthreads_and(right))
        return;
#endif
    int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
    if (x < nx && y < ny)
        out[(size_t)x * ny + y] = in[(size_t)y * nx + x];
}
