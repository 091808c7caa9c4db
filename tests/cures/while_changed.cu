// Wrong: a flag of the block is cleared while others still read it.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[1]
// SAYS: Keep what is read in a variable, and put __syncthreads() after that, before the condition in line 22
__global__ void settle(int *x, int *y) {
    __shared__ int changed;
    int t = threadIdx.x, turns = 0, again;
    do {
        if (t == 0) changed = 0;  // HAZARD: race
        __syncthreads();
        if (x[t] > 3) {
            x[t] /= 2;
            changed = 1;
        }
        ++turns;
        __syncthreads();
#ifdef MENDED
        again = changed;
        __syncthreads();
#else
#define again changed
#endif
    } while (again);  // HAZARD: race
    if (t == 0) *y = turns;
}
