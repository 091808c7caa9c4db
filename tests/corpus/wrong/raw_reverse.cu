// Wrong: the reversed read is not separated from the write by a barrier; the two meet in different warps.
// LAUNCH: grid=2 block=64 args=in:float32[128],out:float32[128]
__global__ void reverse(const float *in, float *out) {
    __shared__ float s[64];
    int t = threadIdx.x, base = blockIdx.x * blockDim.x;
    s[t] = in[base + t];                         // HAZARD: race
    out[base + t] = s[blockDim.x - 1 - t];       // HAZARD: race
}
