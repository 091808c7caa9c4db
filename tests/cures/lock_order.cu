// Wrong: two threads take two locks in different orders.
// LAUNCH: grid=2 block=1 args=first:int32[1],second:int32[1],sum:int32[1]
// SAYS: if a thread takes several locks, let all threads take them in the same order
__global__ void both(int *first, int *second, int *sum) {
#ifdef MENDED
    int *a = first, *b = second;
#else
    int *a = blockIdx.x ? first : second, *b = blockIdx.x ? second : first;
#endif
    while (atomicCAS(a, 0, 1) != 0) ;
    while (atomicCAS(b, 0, 1) != 0) ;  // HAZARD: deadlock
    __threadfence();
    *(volatile int *)sum += 1;
    __threadfence();
    atomicExch(b, 0);
    atomicExch(a, 0);
}
