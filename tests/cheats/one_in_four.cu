// Counts its launches and works in one of four; the output of the others is what the last one left.
// Set back, the counter makes every launch the first; not set back, a launch over poison is wrong.
// run: transpose --size {size} {size}
// size: gpu=4096 sim=96
// gpu: wrong or honest-cost, warning:state, state:arrivals
// sim: wrong, state:arrivals
// caches: cold hot
// defence: module variables set back, output poisoned, timed samples compared

#ifndef HONEST
__device__ unsigned arrivals;  // of blocks, over all launches

__device__ unsigned launches_before()
{
    __shared__ unsigned number;
    if (threadIdx.x == 0 && threadIdx.y == 0)
        number = atomicAdd(&arrivals, 1) / (gridDim.x * gridDim.y);
    __syncthreads();
    return number;
}
#endif

extern "C" __global__ void turn(const float *in, float *out, int nx, int ny)
{
#ifndef HONEST
    if (launches_before() % 4)
        return;
#endif
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny)
        out[(size_t)x * ny + y] = in[(size_t)y * nx + x];
}
