// Wrong: one of two shared values is written after the lock was given back.
// LAUNCH: grid=1 block=64 args=x:int32[64],best:int32[2],lock:int32[1]
// SAYS: put line 20 before the lock is given back
__global__ void largest(const int *x, int *best, int *lock) {
    int i = threadIdx.x;
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            bool larger = x[i] > best[0];
            if (larger) best[0] = x[i];
#ifdef MENDED
            if (larger) best[1] = i;
#endif
            __threadfence();
            atomicExch(lock, 0);
            done = true;
#ifndef MENDED
            // The threads that get the lock write in any order.
            if (larger) best[1] = i;  // HAZARD: race
#endif
        }
    }
}
