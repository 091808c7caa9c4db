// Wrong: threads of one block count in global memory without atomics.
// LAUNCH: grid=1 block=128 args=in:int32[128],bins:int32[16]
__global__ void histogram(const int *in, int *bins) {
    bins[in[threadIdx.x]] += 1;                  // HAZARD: race
}
