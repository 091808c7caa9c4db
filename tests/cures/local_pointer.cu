// Wrong: a thread uses a pointer to a local variable of another thread.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: reads from where[63] a pointer to a local variable of thread (63, 0, 0)
__global__ void reverse(const int *x, int *y) {
    int t = threadIdx.x;
#ifdef MENDED
    __shared__ int values[64];
    values[t] = x[t];
    __syncthreads();
    y[t] = values[63 - t];
#else
    __shared__ int *where[64];
    int mine[2] = {x[t], t};
    where[t] = mine;
    __syncthreads();
    y[t] = where[63 - t][0] + mine[1];  // HAZARD: out-of-bounds
#endif
}
