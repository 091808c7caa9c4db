// Tiled product of any shape, zero beyond the edges, both barriers in place.
#define W 16
__global__ void matmul(const float *a, const float *b, float *c, int m, int k, int n) {
    __shared__ float ta[W][W], tb[W][W];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * W + ty, col = blockIdx.x * W + tx;
    float sum = 0;
    for (int base = 0; base < k; base += W) {
        ta[ty][tx] = row < m && base + tx < k ? a[row * k + base + tx] : 0;
        tb[ty][tx] = base + ty < k && col < n ? b[(base + ty) * n + col] : 0;
        __syncthreads();
        for (int i = 0; i < W; i++) sum += ta[ty][i] * tb[i][tx];
        __syncthreads();
    }
    if (row < m && col < n) c[row * n + col] = sum;
}
