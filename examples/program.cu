// A whole program, with its main: y = a x + y over as many numbers as it is told, and a check. It runs without a GPU:
//
//   cudabench exec examples/program.cu -- 5000

#include <cstdio>
#include <cstdlib>
#include <vector>

__global__ void saxpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = a * x[i] + y[i];
}

int main(int count, char **words)
{
    int n = count > 1 ? atoi(words[1]) : 10000;
    size_t bytes = n * sizeof(float);
    std::vector<float> host(n, 1.0f);
    float *x, *y;
    if (cudaMalloc(&x, bytes) != cudaSuccess || cudaMalloc(&y, bytes) != cudaSuccess)
        return 1;
    cudaMemcpy(x, host.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(y, host.data(), bytes, cudaMemcpyHostToDevice);
    saxpy<<<(n + 255) / 256, 256>>>(n, 2.0f, x, y);
    if (cudaGetLastError() != cudaSuccess || cudaMemcpy(host.data(), y, bytes, cudaMemcpyDeviceToHost) != cudaSuccess)
        return 1;
    int wrong = 0;
    for (float value : host)
        wrong += value != 3.0f;
    printf("%d numbers, %d wrong\n", n, wrong);
    cudaFree(x);
    cudaFree(y);
    return wrong != 0;
}
