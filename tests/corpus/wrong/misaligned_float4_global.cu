// Wrong: one element past a 16-byte boundary is not an address of a float4.
// LAUNCH: grid=1 block=32 args=in:float32[128],out:float32[132]
__global__ void shifted(const float *in, float *out) {
    float x = in[4 * threadIdx.x];
    *reinterpret_cast<float4 *>(out + 4 * threadIdx.x + 1) = make_float4(x, x, x, x);      // HAZARD: misaligned
}
