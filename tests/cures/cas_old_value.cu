// Wrong: a failed compare-and-swap does not renew the expected value.
// LAUNCH: grid=2 block=64 args=x:int32[128],m:int32[1]
// SAYS: let each iteration compare with the value that the last atomicCAS() returned
__global__ void maximum(const int *x, int *m) {
    int i = blockIdx.x * 64 + threadIdx.x, v = x[i] + i;
    int old = *(volatile int *)m;
#ifdef MENDED
    while (old < v) {
        int seen = atomicCAS(m, old, v);
        if (seen == old) break;
        old = seen;
    }
#else
    while (old < v && atomicCAS(m, old, v) != old) ;  // HAZARD: deadlock
#endif
}
