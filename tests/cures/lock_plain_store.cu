// Wrong: a spin lock in shared memory has no fences, and a plain store gives it back.
// LAUNCH: grid=1 block=64 args=x:int32[64],sum:int32[1]
// SAYS: by an atomic, such as atomicExch()
__global__ void add(const int *x, int *sum) {
    __shared__ int lock, total;
    if (threadIdx.x == 0) lock = total = 0;
    __syncthreads();
    while (atomicCAS(&lock, 0, 1) != 0) ;  // HAZARD: race
#ifdef MENDED
    __threadfence();
    total += x[threadIdx.x];
    __threadfence();
    atomicExch(&lock, 0);
#else
    total += x[threadIdx.x];  // HAZARD: race
    lock = 0;  // HAZARD: race
#endif
    __syncthreads();
    if (threadIdx.x == 0) *sum = total;
}
