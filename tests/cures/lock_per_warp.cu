// Wrong: one lane of each warp takes a lock in shared memory, without fences.
// LAUNCH: grid=1 block=128 args=x:int32[128],y:int32[1]
// SAYS: put __threadfence() after taking the lock and before giving it back
__global__ void total(const int *x, int *y) {
    __shared__ int lock, sum;
    if (threadIdx.x == 0) lock = sum = 0;
    __syncthreads();
    int v = __reduce_add_sync(~0u, x[threadIdx.x]);
    if (threadIdx.x % 32 == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) ;
#ifdef MENDED
        __threadfence();
#endif
        sum += v;  // HAZARD: race
#ifdef MENDED
        __threadfence();
#endif
        atomicExch(&lock, 0);
    }
    __syncthreads();
    if (threadIdx.x == 0) *y = sum;
}
