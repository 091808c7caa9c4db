// Wrong: a spin lock has no fences.
// LAUNCH: grid=1 block=64 args=x:int32[64],list:int32[64],len:int32[1],lock:int32[1]
// SAYS: put __threadfence() after taking the lock and before giving it back
__global__ void push(const int *x, int *list, int *len, int *lock) {
    int i = threadIdx.x;
    while (atomicCAS(lock, 0, 1) != 0) ;
#ifdef MENDED
    __threadfence();
#endif
    list[*len] = x[i];  // HAZARD: race
    *len = *len + 1;  // HAZARD: race
#ifdef MENDED
    __threadfence();
#endif
    atomicExch(lock, 0);
}
