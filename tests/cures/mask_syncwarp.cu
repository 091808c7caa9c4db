// Wrong: __syncwarp names half of the lanes that execute it.
// LAUNCH: grid=1 block=32 args=x:int32[32],y:int32[32]
// SAYS: let the mask name all lanes that come to this line
__global__ void swap(const int *x, int *y) {
    __shared__ int s[32];
    s[threadIdx.x] = x[threadIdx.x];
#ifdef MENDED
    __syncwarp();
#else
    __syncwarp(0x0000ffffu);  // HAZARD: invalid-mask
#endif
    y[threadIdx.x] = s[threadIdx.x ^ 16];
}
