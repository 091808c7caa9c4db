// Wrong: the index lacks the block.
// LAUNCH: grid=4 block=64 args=x:float32[256],y:float32[256]
// SAYS: the index is the same in all blocks: if each block has its own elements, add blockIdx.x * blockDim.x to it
__global__ void k(const float *x, float *y) {
#ifdef MENDED
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#else
    int i = threadIdx.x;
#endif
    y[i] = y[i] + x[i];  // HAZARD: race
}
