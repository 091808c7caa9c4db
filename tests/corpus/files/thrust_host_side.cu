// Containers and algorithms of thrust in main; the kernel is plain.
// run: -g 'cdiv(n,128)' -b 128 --arg 'x=int32[n]:random' --arg n=500 --expect 'x=x0^(x0>>1)'
// expect: ok
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <iostream>

__global__ void gray(int *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = x[i] ^ (x[i] >> 1);
}

int main() {
    thrust::host_vector<int> h(500);
    thrust::device_vector<int> d = h;
    gray<<<4, 128>>>(thrust::raw_pointer_cast(d.data()), 500);
    thrust::sort(d.begin(), d.end());
    std::cout << thrust::reduce(d.begin(), d.end()) << "\n";
}
