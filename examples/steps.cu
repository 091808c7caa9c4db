// Programs of several launches, as --step says them: a sum in two launches, heat that spreads in 100, and neighbours in turns.
//
//   cudabench run examples/steps.cu --step 'partial<<<cdiv(n,256), 256>>>(x, sums, n)' \
//       --step 'partial<<<1, 256>>>(sums, total, cdiv(n,256))' --arg n=65536 --arg 'x=float32[n]:random' \
//       --arg 'sums=float32[cdiv(n,256)]:empty' --arg 'total=float32[1]:empty' --expect 'total=np.sum(x)'

// The sum of each 256 numbers, one block each.
__global__ void partial(const float *x, float *sums, int n)
{
    __shared__ float part[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        sums[blockIdx.x] = part[0];
}

// Each inner point of b becomes the mean of its four neighbours in a; the edge stays.
__global__ void heat(const float *a, float *b, int m, int n)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, i = y * m + x;
    if (x >= m || y >= n)
        return;
    bool edge = x == 0 || y == 0 || x == m - 1 || y == n - 1;
    b[i] = edge ? a[i] : (a[i - 1] + a[i + 1] + a[i - m] + a[i + m]) / 4;
}

// Of a line of points the even ones become the mean of their neighbours, then the odd ones.
__device__ void relax(float *u, int i, int n)
{
    if (i > 0 && i < n - 1)
        u[i] = (u[i - 1] + u[i + 1]) / 2;
}

__global__ void red(float *u, int n)
{
    relax(u, 2 * (blockIdx.x * blockDim.x + threadIdx.x), n);
}

__global__ void black(float *u, int n)
{
    relax(u, 2 * (blockIdx.x * blockDim.x + threadIdx.x) + 1, n);
}
