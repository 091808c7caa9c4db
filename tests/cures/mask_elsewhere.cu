// Wrong: a shuffle in a branch names lanes that wait at the barrier behind it.
// LAUNCH: grid=1 block=32 args=x:int32[32],y:int32[32]
// SAYS: Let all lanes that the mask names come to this line, or take the mask from __ballot_sync() of the condition
__global__ void half(const int *x, int *y) {
    __shared__ int s[32];
    int t = threadIdx.x, v = x[t];
#ifdef MENDED
    unsigned mask = __ballot_sync(0xffffffffu, t < 16);
#else
    unsigned mask = 0xffffffffu;
#endif
    if (t < 16)
        v += __shfl_xor_sync(mask, v, 8);  // HAZARD: invalid-mask
    s[t] = v;
    __syncthreads();
    y[t] = s[31 - t];
}
