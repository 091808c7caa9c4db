// Wrong: the fence stands after the count, where it orders nothing that others wait for.
// LAUNCH: grid=4 block=64 args=in:int32[256],partial:int32[4],arrived:uint32[1],out:int32[1]
__global__ void most(const int *in, int *partial, unsigned *arrived, int *out) {
    __shared__ bool last;
    int t = threadIdx.x, v = __reduce_max_sync(0xffffffffu, in[blockIdx.x * 64 + t]);
    if (t == 0) {
        partial[blockIdx.x] = v;                 // HAZARD: missing-fence
        last = atomicInc(arrived, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (!last) return;
    if (t == 0) {
        for (int b = 0; b < gridDim.x; b++) v = max(v, ((volatile int *)partial)[b]);
        out[0] = v;
    }
}
