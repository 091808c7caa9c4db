// Wrong: one thread keeps a total that another one goes on with in the next turn.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[1]
// SAYS: Put __syncthreads() at the end of the body of the loop in line 9, after line 11, outside of the condition in line
__global__ void serial(const int *x, int *y) {
    __shared__ int total;
    int t = threadIdx.x;
    if (t == 0) total = 0;
    __syncthreads();
    for (int k = 0; k < 64; ++k) {
        if (t == k)
            total = total * 3 + x[k];  // HAZARD: race
#ifdef MENDED
        __syncthreads();
#endif
    }
    __syncthreads();
    if (t == 0) *y = total;
}
