// A product of two square matrices, one element a thread, straight from global memory.
extern "C" __global__ void multiply(const float *a, const float *b, float *c, int side)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= side || y >= side)
        return;
    float sum = 0;
    for (int k = 0; k < side; k++)
        sum += a[y * side + k] * b[k * side + x];
    c[y * side + x] = sum;
}
