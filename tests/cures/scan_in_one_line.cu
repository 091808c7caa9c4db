// Wrong: lanes of a warp scan without synchronisation, in a loop of one line.
// LAUNCH: grid=1 block=32 args=x:int32[32],y:int32[32]
// SAYS: and at the end of the body of the loop in line 22, after line 22, with braces around both
__global__ void scan(const int *x, int *y) {
    __shared__ volatile int s[48];
    volatile int *p = s;
    int lane = threadIdx.x;
    if (lane < 16) p[lane] = 0;
    p[lane + 16] = x[lane];
#ifdef MENDED
    __syncwarp();
    for (int d = 1; d < 32; d *= 2) {
        int v = p[lane + 16 - d] + p[lane + 16];
        __syncwarp();
        p[lane + 16] = v;
        __syncwarp();
    }
#else
    // The compiler unrolls this loop, and its accesses have only
    // the line and column of the loop itself, not of the statement
    // in its body.
    for (int d = 1; d < 32; d *= 2) p[lane + 16] += p[lane + 16 - d];  // HAZARD: race
#endif
    y[lane] = p[lane + 16];
}
