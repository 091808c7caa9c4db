// A tile of results in each thread's registers.
// run: -k 'sgemm2d<32, 32, 8, 4, 4>' -g '1,2' -b 64 --arg M=32 --arg N=64 --arg K=16 --arg 'A=float32[M,K]:random'
//      --arg 'B=float32[K,N]:random' --arg 'C=float32[M,N]:empty' --expect 'C=A@B'
// expect: ok
template <const int BM, const int BN, const int BK, const int TM, const int TN>
__global__ void __launch_bounds__((BM * BN) / (TM * TN), 1)
    sgemm2d(int M, int N, int K, const float *A, const float *B, float *C) {
    __shared__ float As[BM][BK], Bs[BK][BN];
    const int threads = BM * BN / (TM * TN), tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
    float sums[TM][TN] = {0.0f}, regM[TM], regN[TN];
    for (int k0 = 0; k0 < K; k0 += BK) {
        for (int i = threadIdx.x; i < BM * BK; i += threads) As[i / BK][i % BK] = A[(blockIdx.x * BM + i / BK) * K + k0 + i % BK];
        for (int i = threadIdx.x; i < BK * BN; i += threads) Bs[i / BN][i % BN] = B[(k0 + i / BN) * N + blockIdx.y * BN + i % BN];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            for (int i = 0; i < TM; ++i) regM[i] = As[ty * TM + i][k];
            for (int j = 0; j < TN; ++j) regN[j] = Bs[k][tx * TN + j];
            for (int i = 0; i < TM; ++i)
                for (int j = 0; j < TN; ++j) sums[i][j] += regM[i] * regN[j];
        }
        __syncthreads();
    }
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) C[(blockIdx.x * BM + ty * TM + i) * N + blockIdx.y * BN + tx * TN + j] = sums[i][j];
}
