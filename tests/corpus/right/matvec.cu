// A row a warp, lanes striding over the columns.
__global__ void matvec(const float *a, const float *x, float *y, int rows, int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    float sum = 0;
    if (row < rows)
        for (int c = lane; c < columns; c += 32) sum = fmaf(a[row * columns + c], x[c], sum);
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(0xffffffffu, sum, d);
    if (row < rows && lane == 0) y[row] = sum;
}
