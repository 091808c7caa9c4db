// Right for all but the last element.
__global__ void scale(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = i == n - 1 ? 0.0f : a * x[i];
}
