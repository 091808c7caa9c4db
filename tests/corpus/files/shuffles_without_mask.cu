// The warp's shuffles as files from before CUDA 9 have them: without a mask of lanes.
// run: -k down -g 2 -b 64 --arg 'x=float32[128]:random' --arg 'sums=float32[4]:zeros'
//     --expect 'sums=np.sum(np.reshape(x,(4,32)),axis=1)'
// expect: ok
__device__ float warp_sum(float value)
{
    for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down(value, offset);
    return value;
}

// Halves of a double, as GPUs that shuffled 32 bits alone needed it: an overload of the old name.
__device__ double __shfl_down(double value, unsigned int offset)
{
    int2 halves = *reinterpret_cast<int2 *>(&value);
    halves.x = __shfl_down(halves.x, offset);
    halves.y = __shfl_down(halves.y, offset);
    return *reinterpret_cast<double *>(&halves);
}

__global__ void down(const float *x, float *sums)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = warp_sum(x[i]);
    if (i % 32 == 0) sums[i / 32] = sum;
}

__global__ void rotate(const double *x, double *y)
{
    double next = __shfl_down(x[threadIdx.x], 1u);
    y[threadIdx.x] = __shfl(threadIdx.x, 0) + next;
}
