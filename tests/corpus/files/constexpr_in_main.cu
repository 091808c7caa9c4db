// constexpr inside the host's functions makes none of them the device's.
// run: -g 'cdiv(n,128)' -b 128 --arg 'x=int32[n]:arange' --arg n=300 --expect 'x=3*x0'
// expect: ok
#include <array>
#include <cstdlib>

constexpr int factor() { return 3; }

__global__ void triple(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= factor();
}

static void check(cudaError_t status) {
    if (status != cudaSuccess) std::exit(EXIT_FAILURE);
}

int main(int argc, char **argv) {
    constexpr size_t bytes = 300 * sizeof(int);
    static constexpr int blocks = 3;
    int *x = nullptr;
    check(cudaMalloc(reinterpret_cast<void **>(&x), bytes));
    triple<<<blocks, 128>>>(x, 300);
    check(cudaFree(x));
    return 0;
}
