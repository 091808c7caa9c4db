// Wrong: the last block reads the others' sums, of this launch, through the read-only cache.
// LAUNCH: grid=4 block=32 args=x:int32[128],sums:int32[4],count:uint32[1]
__global__ void total(const int *x, int *sums, unsigned *count) {
    int v = __reduce_add_sync(~0u, x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = v;
        __threadfence();
        if (atomicAdd(count, 1u) == 3) {
            __threadfence();
            int all = 0;
            for (unsigned b = 0; b < gridDim.x; b++)
                all += __ldg(&sums[b]);          // HAZARD: stale-read
            sums[0] = all;
        }
    }
}
