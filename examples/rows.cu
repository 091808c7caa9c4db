// The sum of each row of a matrix, twice: a thread a row reads far apart, a warp a row reads side by side. Their launch:
//
//   cudabench run examples/rows.cu -k all --grid 'cdiv(rows,8)' --block 256 --arg rows=1024 --arg cols=512 \
//       --arg 'in=float32[rows,cols]:random' --arg 'out=float32[rows]:empty' \
//       --expect 'out=np.sum(in,axis=1)' --bytes '4*rows*cols'

__global__ void by_thread(int rows, int cols, const float *in, float *out)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows)
        return;
    float sum = 0;
    for (int col = 0; col < cols; col++)
        sum += in[row * cols + col];
    out[row] = sum;
}

__global__ void by_warp(int rows, int cols, const float *in, float *out)
{
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows)
        return;
    float sum = 0;
    for (int col = lane; col < cols; col += 32)
        sum += in[row * cols + col];
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, step);
    if (lane == 0)
        out[row] = sum;
}
