// Wrong: the flag's scope is the block, so other blocks may see it before the data, or never.
// LAUNCH: grid=2 block=32 args=a:int32[1],y:int32[1]
#include <cuda/atomic>
__device__ int flag;
__global__ void hand_on(int *a, int *y) {
    if (threadIdx.x) return;
    cuda::atomic_ref<int, cuda::thread_scope_block> at(flag);
    if (blockIdx.x == 0) {
        a[0] = 7;
        at.store(1, cuda::memory_order_release);                  // HAZARD: race
    } else {
        while (at.load(cuda::memory_order_acquire) == 0) ;        // HAZARD: race
        y[0] = a[0];                                              // HAZARD: race
    }
}
