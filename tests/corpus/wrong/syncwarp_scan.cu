// Wrong: a scan within one warp, through shared memory, without __syncwarp between read and write.
// LAUNCH: grid=1 block=32 args=x:int32[32]
__global__ void scan(int *x) {
    volatile __shared__ int s[32];
    int t = threadIdx.x;
    s[t] = x[t];                                 // HAZARD: race
    for (int d = 1; d < 32; d *= 2) {
        int left = t >= d ? s[t - d] : 0;        // HAZARD: race
        s[t] = s[t] + left;                      // HAZARD: race
    }
    x[t] = s[t];
}
