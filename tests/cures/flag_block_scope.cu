// Wrong: the flag has block scope, but another block waits for it.
// LAUNCH: grid=2 block=32 args=flag:int32[1],data:int32[32],out:int32[32]
// SAYS: use one of device scope, such as atomicAdd() or that of cuda::thread_scope_device
#include <cuda/atomic>
#ifdef MENDED
constexpr auto SCOPE = cuda::thread_scope_device;
#else
constexpr auto SCOPE = cuda::thread_scope_block;
#endif
__global__ void publish(int *flag, int *data, int *out) {
    cuda::atomic_ref<int, SCOPE> f(*flag);
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x * 7;
        __syncthreads();
        if (threadIdx.x == 0) f.store(1, cuda::memory_order_release);  // HAZARD: race
    } else {
        if (threadIdx.x == 0) while (f.load(cuda::memory_order_acquire) == 0) { }  // HAZARD: race
        __syncthreads();
        out[threadIdx.x] = data[threadIdx.x];  // HAZARD: race
    }
}
