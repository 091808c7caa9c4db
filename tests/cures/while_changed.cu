// Wrong: a flag of the block is cleared while others still read it.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[1]
// SAYS: ?
__global__ void settle(int *x, int *y) {
    __shared__ int changed;
    int t = threadIdx.x, turns = 0;
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
        int again = changed;
        __syncthreads();
    } while (again);
#else
    } while (changed);  // HAZARD: race
#endif
    if (t == 0) *y = turns;
}
