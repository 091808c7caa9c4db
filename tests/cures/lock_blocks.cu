// Wrong: blocks take a lock that has no fences.
// LAUNCH: grid=4 block=32 args=x:int32[128],sum:int32[1],lock:int32[1]
// SAYS: Put __threadfence() between the write and the atomic
__global__ void add(const int *x, int *sum, int *lock) {
    int v = __reduce_add_sync(~0u, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) ;
#ifdef MENDED
        __threadfence();
#endif
        *sum += v;  // HAZARD: missing-fence
#ifdef MENDED
        __threadfence();
#endif
        atomicExch(lock, 0);
    }
}
