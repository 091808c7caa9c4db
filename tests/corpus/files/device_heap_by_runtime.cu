// Memory that a kernel takes by the device runtime's cudaMalloc and gives back by its cudaFree.
// run: -k sorted_by_rank -g 2 -b 32 --arg 'keys=float32[64]:random' --arg 'ranks=int32[64]:zeros' --arg n=32
//      --expect 'ranks=np.concatenate([np.argsort(np.argsort(keys[:32])), np.argsort(np.argsort(keys[32:]))])'
// expect: ok
#include <cstdio>
#include <cuda_runtime.h>

struct Scratch {
    float *key;
    int *rank;
};

__global__ void sorted_by_rank(const float *keys, int *ranks, int n) {
    Scratch own;
    if (cudaMalloc((void **)&own.key, n * sizeof(float)) != cudaSuccess) {
        printf("no memory for %d keys\n", n);
        return;
    }
    cudaError_t error = cudaMalloc(&own.rank, n * sizeof(int));
    if (error == cudaErrorMemoryAllocation) return;
    const float *row = keys + blockIdx.x * n;
    for (int i = 0; i < n; ++i) {
        own.key[i] = row[i];
        own.rank[i] = row[i] < row[threadIdx.x];
    }
    int below = 0;
    for (int i = 0; i < n; ++i) below += own.rank[i];
    ranks[blockIdx.x * n + threadIdx.x] = below;
    cudaFree(own.rank);
    cudaFree(own.key);
}

int main() {
    float *keys;
    int *ranks;
    cudaMalloc(&keys, 64 * sizeof(float));
    cudaMalloc((void **)&ranks, 64 * sizeof(int));
    sorted_by_rank<<<2, 32>>>(keys, ranks, 32);
    cudaError_t error = cudaGetLastError();
    if (error != cudaSuccess) printf("%s\n", cudaGetErrorString(error));
    cudaFree(keys);
    return cudaFree(ranks);
}
