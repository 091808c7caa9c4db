// Wrong: a block counts in global memory without atomics.
// LAUNCH: grid=1 block=96 args=x:int32[96],n:int32[1]
// SAYS: let one thread write, or use an atomic, such as atomicAdd(), atomicMax() or atomicExch(), since threads update one element
__global__ void count(const int *x, int *n) {
    if (x[threadIdx.x] > 3)
#ifdef MENDED
        atomicAdd(n, 1);
#else
        *n += 1;  // HAZARD: race
#endif
}
