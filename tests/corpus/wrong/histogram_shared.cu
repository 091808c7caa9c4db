// Wrong: the bins are counted up without atomics.
// LAUNCH: grid=1 block=128 args=in:int32[128],out:int32[16]
__global__ void histogram(const int *in, int *out) {
    __shared__ int bins[16];
    int t = threadIdx.x;
    if (t < 16) bins[t] = 0;
    __syncthreads();
    bins[in[t]]++;                               // HAZARD: race
    __syncthreads();
    if (t < 16) out[t] = bins[t];
}
