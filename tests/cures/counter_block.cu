// Wrong: a block counts in global memory without atomics.
// LAUNCH: grid=1 block=96 args=x:int32[96],n:int32[1]
// SAYS: threads update one element: use an atomic, such as atomicAdd() or atomicMax(), or let one thread do it
__global__ void count(const int *x, int *n) {
    if (x[threadIdx.x] > 3)
#ifdef MENDED
        atomicAdd(n, 1);
#else
        *n += 1;  // HAZARD: race
#endif
}
