// Wrong: lanes vote with a mask that leaves them out.
// LAUNCH: grid=1 block=32 args=x:int32[32],y:uint32[32]
// SAYS: let the mask name all lanes that come to this line
__global__ void vote(const int *x, unsigned *y) {
#ifdef MENDED
    unsigned mask = 0xffffffffu;
#else
    unsigned mask = 0x0000ffffu;
#endif
    y[threadIdx.x] = __ballot_sync(mask, x[threadIdx.x] > 5);  // HAZARD: invalid-mask
}
