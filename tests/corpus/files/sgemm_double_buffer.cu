// The next tile is fetched while this one is used: two buffers.
// run: -g '2,2' -b '16,16' --arg 'A=float32[32,64]:random' --arg 'B=float32[64,32]:random' --arg 'C=float32[32,32]:empty'
//      --expect 'C=A@B' --rtol 1e-4
// expect: ok
constexpr int T = 16, M = 32, N = 32, K = 64;

__global__ void pipelined(const float (*A)[K], const float (*B)[N], float (*C)[N]) {
    __shared__ float as[2][T][T], bs[2][T][T];
    int tx = threadIdx.x, ty = threadIdx.y, row = blockIdx.y * T + ty, col = blockIdx.x * T + tx;
    as[0][ty][tx] = A[row][tx];
    bs[0][ty][tx] = B[ty][col];
    __syncthreads();
    float sum = 0;
    int now = 0;
    for (int t = 1; t <= K / T; ++t) {
        if (t < K / T) {
            as[now ^ 1][ty][tx] = A[row][t * T + tx];
            bs[now ^ 1][ty][tx] = B[t * T + ty][col];
        }
        for (int k = 0; k < T; ++k) sum += as[now][ty][k] * bs[now][k][tx];
        __syncthreads();
        now ^= 1;
    }
    C[row][col] = sum;
}
