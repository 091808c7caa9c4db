// cub's collectives inside a kernel, by the header that has everything.
// run: -k block_sum -g 4 -b 128 --arg 'x=int32[512]:random' --arg 'sums=int32[4]:empty'
//      --expect 'sums=np.sum(np.reshape(x,(4,128)),axis=1)'
// expect: ok
// slow: seconds of compiling or of checking
#include <cub/cub.cuh>

__global__ void block_sum(const int *x, int *sums) {
    using BlockReduce = cub::BlockReduce<int, 128>;
    __shared__ typename BlockReduce::TempStorage storage;
    int total = BlockReduce(storage).Sum(x[blockIdx.x * 128 + threadIdx.x]);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

void whole(const int *x, int *sum, int n) {
    size_t bytes = 0;
    cub::DeviceReduce::Sum(nullptr, bytes, x, sum, n);
    void *storage = nullptr;
    cudaMalloc(&storage, bytes);
    cub::DeviceReduce::Sum(storage, bytes, x, sum, n);
}
