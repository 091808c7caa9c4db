// Wrong: one of two updates of a counter is no atomic.
// LAUNCH: grid=4 block=64 args=x:int32[256],count:int32[1]
// SAYS: updates the element without an atomic: use one there as well
__global__ void count(const int *x, int *count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (x[i] > 3) atomicAdd(count, 1);  // HAZARD: race
#ifdef MENDED
    else if (i % 64 == 0) atomicAdd(count, 1);
#else
    else if (i % 64 == 0) ++*count;  // HAZARD: race
#endif
}
