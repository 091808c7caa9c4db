// Wrong: the scan reads and writes one buffer with a single barrier a step.
// LAUNCH: grid=1 block=64 args=x:int32[64]
__global__ void scan(int *x) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    for (int d = 1; d < 64; d *= 2) {
        __syncthreads();
        int left = t >= d ? s[t - d] : 0;        // HAZARD: race
        s[t] += left;                            // HAZARD: race
    }
    __syncthreads();
    x[t] = s[t];
}
