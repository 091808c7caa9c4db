// Wrong: a thread frees memory that another warp still reads.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: Put __syncthreads() between line 16 and line 20
__global__ void reverse(const int *x, int *y) {
    __shared__ int *p;
    int t = threadIdx.x;
    if (t == 0) p = (int *)malloc(64 * sizeof(int));
    __syncthreads();
    if (!p) {
        y[t] = -1;
        return;
    }
    p[t] = x[t];
    __syncthreads();
    // Its own element, and that of a thread in the other warp.
    y[t] = p[63 - t] - p[t];
#ifdef MENDED
    __syncthreads();
#endif
    if (t == 0) free(p);  // HAZARD: race
}
