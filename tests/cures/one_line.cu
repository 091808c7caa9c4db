// Wrong: write and read stand in one line.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: Put __syncthreads() in line 10, between the two statements
__global__ void mirror(const int *x, int *y) {
    __shared__ int s[64];
    int t = threadIdx.x;
#ifdef MENDED
    s[t] = x[t]; __syncthreads(); y[t] = s[63 - t];
#else
    s[t] = x[t]; __syncwarp(); y[t] = s[63 - t];  // HAZARD: race
#endif
}
