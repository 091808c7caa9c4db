// Wrong: odd-even exchange sort with no barrier between its turns.
// LAUNCH: grid=1 block=32 args=x:int32[64]
// SAYS: Put __syncwarp() at the end of the body of the loop in line 9, after line 15, outside of the condition in line 11
__global__ void sort(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = 15 - x[t]; s[t + 32] = x[t + 32];
    __syncthreads();
    for (int k = 0; k < 64; ++k) {
        int i = 2 * t + k % 2;
        if (i < 63 && s[i] > s[i + 1]) {  // HAZARD: race
            int v = s[i];
            s[i] = s[i + 1];  // HAZARD: race
            s[i + 1] = v;  // HAZARD: race
        }
#ifdef MENDED
        __syncwarp();
#endif
    }
    __syncthreads();
    x[t] = s[t]; x[t + 32] = s[t + 32];
}
