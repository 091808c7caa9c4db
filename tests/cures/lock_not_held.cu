// Wrong: threads that did not get the lock give it back.
// LAUNCH: grid=2 block=64 args=x:int32[128],sum:int32[1],lock:int32[1]
// SAYS: gives back the lock that it did not get in line 8
__global__ void add(const int *x, int *sum, int *lock) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    bool done = false;
    while (!done) {
        if (atomicCAS(lock, 0, 1) == 0) {
            __threadfence();
            *sum += x[i];
            __threadfence();
            done = true;
#ifdef MENDED
            atomicExch(lock, 0);
#endif
        }
#ifndef MENDED
        atomicExch(lock, 0);  // HAZARD: race
#endif
    }
}
