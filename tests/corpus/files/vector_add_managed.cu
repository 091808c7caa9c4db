// A first lesson: managed memory, error checks left to the reader, timing on the host.
// run: -g 'cdiv(n,256)' -b 256 --arg n=1000 --arg 'a=float32[n]:random' --arg 'b=float32[n]:random'
//      --arg 'c=float32[n]:empty' --expect 'c=a+b' --bytes '3*4*n'
// expect: ok
#include <cmath>
#include <iostream>

__global__ void add(int n, const float *a, const float *b, float *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}

int main() {
    constexpr int N = 1 << 20;
    float *a, *b, *c;
    cudaMallocManaged(&a, N * sizeof(float));
    cudaMallocManaged(&b, N * sizeof(float));
    cudaMallocManaged(&c, N * sizeof(float));
    for (int i = 0; i < N; i++) a[i] = 1.0f, b[i] = 2.0f;
    add<<<(N + 255) / 256, 256>>>(N, a, b, c);
    cudaDeviceSynchronize();
    float worst = 0.0f;
    for (int i = 0; i < N; i++) worst = std::fmax(worst, std::fabs(c[i] - 3.0f));
    std::cout << "worst: " << worst << std::endl;
    cudaFree(a), cudaFree(b), cudaFree(c);
}
