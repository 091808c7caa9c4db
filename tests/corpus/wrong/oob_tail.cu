// Wrong: the grid covers 128 elements, the arrays have 100, and nothing guards the tail.
// LAUNCH: grid=2 block=64 args=in:float32[100],out:float32[100]
__global__ void scale(const float *in, float *out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float v = in[i];                             // HAZARD: out-of-bounds
    out[i] = 2 * v;                              // HAZARD: out-of-bounds
}
