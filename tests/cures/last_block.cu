// Wrong: the last block reads partial sums that no fence stands after.
// LAUNCH: grid=4 block=32 args=x:int32[128],part:int32[4],y:int32[1]
// SAYS: Put __threadfence() between the write and the atomic
__device__ unsigned done = 0;
__global__ void sum(const int *x, int *part, int *y) {
    int t = threadIdx.x, v = __reduce_add_sync(~0u, x[blockIdx.x * 32 + t]);
    if (t == 0) {
        part[blockIdx.x] = v;  // HAZARD: missing-fence
#ifdef MENDED
        __threadfence();
#endif
        if (atomicAdd(&done, 1) == gridDim.x - 1) {
            int total = 0;
            for (int i = 0; i < gridDim.x; ++i)
                total += ((volatile int *)part)[i];
            *y = total;
        }
    }
}
