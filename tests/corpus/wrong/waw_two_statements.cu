// Wrong: two statements write the same words from different threads with no barrier between them.
// LAUNCH: grid=1 block=64 args=out:float32[64]
__global__ void overwrite(float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = t;                                    // HAZARD: race
    if (t < 32) s[63 - t] = -t;                  // HAZARD: race
    __syncthreads();
    out[t] = s[t ^ 1];
}
