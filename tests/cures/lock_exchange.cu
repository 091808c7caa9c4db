// Wrong: a lock that is taken by an exchange has no fences.
// LAUNCH: grid=1 block=64 args=x:int32[64],sum:int32[1],lock:int32[1]
// SAYS: put __threadfence() after taking the lock and before giving it back
__global__ void add(const int *x, int *sum, int *lock) {
    bool done = false;
    while (!done) {
        if (atomicExch(lock, 1) == 0) {
#ifdef MENDED
            __threadfence();
#endif
            *sum += x[threadIdx.x];  // HAZARD: race
#ifdef MENDED
            __threadfence();
#endif
            atomicExch(lock, 0);
            done = true;
        }
    }
}
