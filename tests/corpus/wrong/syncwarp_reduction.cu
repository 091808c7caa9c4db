// Wrong: the last warp's reduction trusts in lock step: no __syncwarp between its steps.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[1]
__global__ void reduce(const float *in, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = in[t];
    __syncthreads();
    if (t < 32) {
        s[t] += s[t + 32];                       // HAZARD: race
        s[t] += s[t + 16];                       // HAZARD: race
        s[t] += s[t + 8];                        // HAZARD: race
        s[t] += s[t + 4];                        // HAZARD: race
        s[t] += s[t + 2];                        // HAZARD: race
        s[t] += s[t + 1];                        // HAZARD: race
        if (t == 0) out[0] = s[0];
    }
}
