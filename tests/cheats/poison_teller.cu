// Works only where it finds the poison in its output: that is how it would tell a launch that is looked at from one
// that is only timed. Poison before every sample makes all launches alike.
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
    if (__syncthreads_and(__float_as_uint(out[(size_t)x0 * ny + y0]) != 0xFFFFFFFF))
        return;
#endif
    int x = x0 + threadIdx.x, y = y0 + threadIdx.y;
    if (x < nx && y < ny)
        out[(size_t)x * ny + y] = in[(size_t)y * nx + x];
}
