// Wrong: the sum of the block before may have been read ahead of its flag.
// LAUNCH: grid=8 block=32 args=x:int32[8],sum:int32[8]
__device__ volatile int ready[8];
__global__ void scan(const int *x, int *sum) {
    int b = blockIdx.x, before = 0;
    if (threadIdx.x) return;
    if (b > 0) {
        while (ready[b - 1] == 0) ;
        before = sum[b - 1];                     // HAZARD: missing-fence
    }
    sum[b] = before + x[b] + 1;
    __threadfence();
    ready[b] = 1;
}
