// Wrong: with an unsigned index, 0 - 1 is 4294967295.
// LAUNCH: grid=1 block=64 args=in:float32[64],out:float32[64]
__global__ void left(const float *in, float *out) {
    unsigned i = threadIdx.x;
    out[i] = in[i - 1u];                         // HAZARD: out-of-bounds
}
