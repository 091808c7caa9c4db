// Wrong: a lock of relaxed operations keeps others out, but hands on nothing.
// LAUNCH: grid=8 block=32 args=x:int32[8],sum:int32[1]
#include <cuda/atomic>
__device__ int turn;
__global__ void add(const int *x, int *sum) {
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_device> at(turn);
    while (at.load(cuda::memory_order_relaxed) != blockIdx.x) ;
    *sum = *sum + x[blockIdx.x] + 1;             // HAZARD: missing-fence
    at.store(blockIdx.x + 1, cuda::memory_order_relaxed);
}
