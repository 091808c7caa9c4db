// Wrong: a product exceeds 32 bits.
// LAUNCH: grid=2 block=64 args=y:float32[128],pitch:int32=40000000
// SAYS: this is an overflow if the index is a product or sum of 32-bit integers: compute it in size_t
__global__ void rows(float *y, int pitch) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef MENDED
    y[i] = 1;
#else
    if (i > 60) y[i * pitch] = 1;  // HAZARD: out-of-bounds
#endif
}
