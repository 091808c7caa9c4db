// Wrong: the last warp of a reduction counts on lock-step.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[1]
// SAYS: Keep what is read in a variable, and put __syncwarp() between the reads and the writes, and between line 15 and
__global__ void reduce(const int *x, int *y) {
    __shared__ volatile int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    if (t < 32) {
#ifdef MENDED
        int v = s[t] + s[t + 32]; __syncwarp(); s[t] = v; __syncwarp();
        v += s[t + 16]; __syncwarp(); s[t] = v; __syncwarp();
        v += s[t + 8]; __syncwarp(); s[t] = v; __syncwarp();
#else
        s[t] += s[t + 32];
        s[t] += s[t + 16];  // HAZARD: race
        s[t] += s[t + 8];  // HAZARD: race
#endif
    }
    if (t == 0) y[0] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];  // HAZARD: race
}
