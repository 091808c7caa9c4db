// Wrong: the next step's values go into the buffer that this step reads, not into the other one.
// LAUNCH: grid=1 block=64 args=in:float32[512],out:float32[64],steps:int32=8
__global__ void pipeline(const float *in, float *out, int steps) {
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0;
    s[0][t] = in[t];
    s[1][t] = 0;
    __syncthreads();
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
        if (step + 1 < steps) s[step & 1][t] = in[(step + 1) * 64 + t];     // HAZARD: race
        sum += s[step & 1][63 - t];                                         // HAZARD: race
        __syncthreads();
    }
    out[t] = sum;
}
