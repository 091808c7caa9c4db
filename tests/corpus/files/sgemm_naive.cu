// First rung of a matrix product: one thread an element, alpha and beta.
// run: -k sgemm_naive -g 'cdiv(M,16),cdiv(N,16)' -b '16,16' --arg M=20 --arg N=24 --arg K=12 --arg alpha=2
//      --arg 'A=float32[M,K]:random' --arg 'B=float32[K,N]:random' --arg beta=0.5 --arg 'C=float32[M,N]:random'
//      --expect 'C=2*(A@B)+0.5*C0' --flops '2*M*N*K'
// expect: ok
__global__ void sgemm_naive(int M, int N, int K, float alpha, const float *A, const float *B, float beta, float *C) {
    const uint x = blockIdx.x * blockDim.x + threadIdx.x;
    const uint y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < M && y < N) {
        float tmp = 0.0;
        for (int i = 0; i < K; ++i) tmp += A[x * K + i] * B[i * N + y];
        C[x * N + y] = alpha * tmp + beta * C[x * N + y];
    }
}
