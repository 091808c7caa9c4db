// Wrong: one barrier is of a warp where totals of all warps are read.
// LAUNCH: grid=1 block=128 args=x:int32[32],y:int32[128],turns:int32=3
// SAYS: Put __syncthreads() at the end of the body of the loop in line 7, after line 12, outside of the condition in line
__global__ void totals(const int *x, int *y, int turns) {
    __shared__ int total[4];
    int w = threadIdx.x / 32, sum = 0;
    for (int k = 0; k < turns; ++k) {
        if (threadIdx.x % 32 == 31)
            total[w] = x[k * 4 + w];  // HAZARD: race
        __syncthreads();
        for (int j = 0; j < 4; ++j)
            sum += total[j];
#ifdef MENDED
        __syncthreads();
#else
        __syncwarp();
#endif
    }
    y[threadIdx.x] = sum;
}
