// Wrong: tiles of 32 that are 31 apart, so that two blocks write different values at each seam.
// LAUNCH: grid=4 block=32 args=out:int32[128]
__global__ void number(int *out) {
    out[blockIdx.x * 31 + threadIdx.x] = blockIdx.x + 1;       // HAZARD: race
}
