// A template and two kernels of which one takes a struct.
struct Size { int nx, ny; };
template <typename T, int TILE> __global__ void copy(T *out, const T *in, Size size)
{
    int x = blockIdx.x * TILE + threadIdx.x, y = blockIdx.y * TILE + threadIdx.y;
    if (x < size.nx && y < size.ny)
        out[y * size.nx + x] = in[y * size.nx + x];
}
__global__ void twice(int n, int *x)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] *= 2;
}
__global__ void next(int n, const int *x, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[(i + 1) % n];
}
