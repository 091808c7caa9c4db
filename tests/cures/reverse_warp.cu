// Wrong: lanes of one warp exchange values without a barrier.
// LAUNCH: grid=1 block=32 args=x:int32[32],y:int32[32]
// SAYS: Put __syncwarp() between line 7 and line 11
__global__ void reverse(const int *x, int *y) {
    __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];
#ifdef MENDED
    __syncwarp();
#endif
    y[t] = s[31 - t];  // HAZARD: race
}
