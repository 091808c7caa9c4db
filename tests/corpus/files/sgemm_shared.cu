// Tiles in shared memory, the pointers advance along K.
// run: -k 'sgemm_shared<8>' -g '2,3' -b 64 --arg M=16 --arg N=24 --arg K=32 --arg 'A=float32[M,K]:random'
//      --arg 'B=float32[K,N]:random' --arg 'C=float32[M,N]:empty' --expect 'C=A@B'
// expect: ok
#pragma once
#include <cassert>
#include <cublas_v2.h>
#define CEIL_DIV(M, N) (((M) + (N)-1) / (N))

template <const int BS> __global__ void sgemm_shared(int M, int N, int K, const float *A, const float *B, float *C) {
    const uint cRow = blockIdx.x, cCol = blockIdx.y;
    __shared__ float As[BS * BS];
    __shared__ float Bs[BS * BS];
    const uint threadCol = threadIdx.x % BS, threadRow = threadIdx.x / BS;
    A += cRow * BS * K;
    B += cCol * BS;
    C += cRow * BS * N + cCol * BS;
    float tmp = 0.0;
    for (int bkIdx = 0; bkIdx < K; bkIdx += BS) {
        As[threadRow * BS + threadCol] = A[threadRow * K + threadCol];
        Bs[threadRow * BS + threadCol] = B[threadRow * N + threadCol];
        __syncthreads();
        A += BS;
        B += BS * N;
        for (int dotIdx = 0; dotIdx < BS; ++dotIdx) tmp += As[threadRow * BS + dotIdx] * Bs[dotIdx * BS + threadCol];
        __syncthreads();
    }
    C[threadRow * N + threadCol] = tmp;
}

void run(int M, int N, int K, float *A, float *B, float *C) {
    dim3 gridDim(CEIL_DIV(M, 8), CEIL_DIV(N, 8));
    sgemm_shared<8><<<gridDim, 64>>>(M, N, K, A, B, C);
}
