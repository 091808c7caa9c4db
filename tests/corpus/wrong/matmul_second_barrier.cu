// Wrong: the next tiles are loaded while other threads still multiply the present ones.
// LAUNCH: grid=2,2 block=8,8 args=a:float32[256],b:float32[256],c:float32[256],n:int32=16
__global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float ta[8][8], tb[8][8];
    int tx = threadIdx.x, ty = threadIdx.y;
    int row = blockIdx.y * 8 + ty, col = blockIdx.x * 8 + tx;
    float sum = 0;
    for (int k = 0; k < n; k += 8) {
        ta[ty][tx] = a[row * n + k + tx];        // HAZARD: race
        tb[ty][tx] = b[(k + ty) * n + col];      // HAZARD: race
        __syncthreads();
        for (int i = 0; i < 8; i++)
            sum += ta[ty][i] * tb[i][tx];        // HAZARD: race
    }
    c[row * n + col] = sum;
}
