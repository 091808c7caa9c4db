// Wrong: blocks count in global memory without atomics.
// LAUNCH: grid=4 block=32 args=x:int32[128],n:int32[1]
// SAYS: both blocks update one element: give each element to one thread, or update it by an atomic, such as atomicAdd(), atomicMax() or atomicExch()
__global__ void count(const int *x, int *n) {
    int any = __syncthreads_count(x[blockIdx.x * 32 + threadIdx.x] > 5);
    if (threadIdx.x == 0)
#ifdef MENDED
        atomicAdd(n, any);
#else
        *n += any;  // HAZARD: race
#endif
}
