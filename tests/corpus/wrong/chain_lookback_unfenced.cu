// Wrong: a block's sum and the flag behind it may be seen in either order.
// LAUNCH: grid=8 block=32 args=x:int32[8],sum:int32[8]
__device__ volatile int ready[8];
__global__ void scan(const int *x, int *sum) {
    int b = blockIdx.x, before = 0;
    if (threadIdx.x) return;
    if (b > 0) {
        while (ready[b - 1] == 0) ;
        __threadfence();
        before = sum[b - 1];
    }
    sum[b] = before + x[b] + 1;                  // HAZARD: missing-fence
    ready[b] = 1;
}
