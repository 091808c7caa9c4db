// Wrong: no fence between a block's partial sum and its count, so the last block may read what was there before.
// LAUNCH: grid=4 block=64 args=in:int32[256],partial:int32[4],arrived:uint32[1],out:int32[1]
__global__ void reduce(const int *in, volatile int *partial, unsigned *arrived, int *out) {
    __shared__ int s[64];
    __shared__ bool last;
    int t = threadIdx.x;
    s[t] = in[blockIdx.x * 64 + t];
    __syncthreads();
    for (int stride = 32; stride > 0; stride /= 2) {
        if (t < stride) s[t] += s[t + stride];
        __syncthreads();
    }
    if (t == 0) {
        partial[blockIdx.x] = s[0];              // HAZARD: missing-fence
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && t == 0) {
        int sum = 0;
        for (int b = 0; b < gridDim.x; b++) sum += partial[b];
        out[0] = sum;
    }
}
