// Right for its first 16 launches, idle ever after: a look before timing sees nothing.
// Two launches of the simulator are both right, so there only the counter that it keeps can be named.
// run: transpose --size {size} {size}
// size: gpu=4096 sim=96
// gpu: wrong or honest-cost, warning:state, state:arrivals
// sim: ok, state:arrivals
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
    if (launches_before() >= 16)
        return;
#endif
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < nx && y < ny)
        out[(size_t)x * ny + y] = in[(size_t)y * nx + x];
}
