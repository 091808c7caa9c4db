// Wrong: shared words 1, 3, 5, ... are not addresses of a float2.
// LAUNCH: grid=1 block=32 args=in:float32[96],out:float32[64]
__global__ void pairs(const float *in, float *out) {
    __shared__ __align__(16) float s[96];
    int t = threadIdx.x;
    for (int k = 0; k < 3; k++) s[t + 32 * k] = in[t + 32 * k];
    __syncthreads();
    float2 v = *reinterpret_cast<float2 *>(&s[2 * t + 1]);                         // HAZARD: misaligned
    out[2 * t] = v.x;
    out[2 * t + 1] = v.y;
}
