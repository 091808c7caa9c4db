// Works only where its output lies in an even page of 2 MiB: right at some of the places that a small problem is
// sampled at, idle at the others. Every place must be compared, at moments that are not known before.
// run: transpose --size {size} {size}
// size: gpu=512 sim=96
// gpu: wrong or honest-cost
// sim: none
// defence: timed samples compared at every place

extern "C" __global__ void turn(const float *in, float *out, int nx, int ny)
{
#ifndef HONEST
    if ((size_t)out >> 21 & 1)
        return;
#endif
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny)
        out[(size_t)x * ny + y] = in[(size_t)y * nx + x];
}
