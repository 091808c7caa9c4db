// Wrong: each lane takes a lock, and holds it when it waits for its warp.
// LAUNCH: grid=1 block=32 args=lock:int32[1],sum:int32[1]
// SAYS: thread (0, 0, 0) holds this lock and waits in line 18 for the lanes of its warp: let one lane of the warp take the lock
__global__ void add(int *lock, int *sum) {
    int v = threadIdx.x;
#ifdef MENDED
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) ;  // HAZARD: deadlock
        __threadfence();
        *(volatile int *)sum += v;
        __threadfence();
        atomicExch(lock, 0);
    }
#else
    while (atomicCAS(lock, 0, 1) != 0) ;  // HAZARD: deadlock
    __threadfence();
    for (int d = 16; d; d /= 2) v += __shfl_xor_sync(~0u, v, d);
    *(volatile int *)sum += v;
    __threadfence();
    atomicExch(lock, 0);
#endif
}
