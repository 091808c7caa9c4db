// Wrong: an array is reversed in place by several blocks.
// LAUNCH: grid=4 block=64 args=x:float32[256],n:int32=256
// SAYS: let one block of each pair, such as the one with the smaller blockIdx.x, read both parts before it writes both, or write to another array
__global__ void reverse(float *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef MENDED
    if (i < n / 2) { float v = x[i]; x[i] = x[n - 1 - i]; x[n - 1 - i] = v; }
#else
    if (i < n) x[i] = x[n - 1 - i];  // HAZARD: race
#endif
}
