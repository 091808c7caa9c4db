// Wrong: a shuffle names lanes that have returned.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64],n:int32=50
// SAYS: Let all threads of the warp come, and put the condition around the work, or take the mask from __ballot_sync() of
__global__ void sum(const int *x, int *y, int n) {
    int t = threadIdx.x;
#ifdef MENDED
    unsigned mask = __ballot_sync(0xffffffffu, t < n);
#else
    unsigned mask = 0xffffffffu;
#endif
    if (t >= n) return;
    int v = x[t];
    v += __shfl_xor_sync(mask, v, 1);  // HAZARD: invalid-mask
    y[t] = v;
}
