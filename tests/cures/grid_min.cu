// Wrong: blocks keep a minimum in global memory without atomics.
// LAUNCH: grid=4 block=32 args=x:int32[128],low:int32[1]
// SAYS: both blocks update one element: give each element to one thread, or update it by an atomic, such as atomicAdd(), atomicMax() or atomicExch()
__global__ void lowest(const int *x, int *low) {
    int v = __reduce_min_sync(~0u, x[blockIdx.x * 32 + threadIdx.x] - (int)blockIdx.x);
    if (threadIdx.x == 0) {
#ifdef MENDED
        atomicMin(low, v);
#else
        if (v < *low)  // HAZARD: race
            *low = v;  // HAZARD: race
#endif
    }
}
