// Wrong: one element past a 16-byte boundary is no address of a float4.
// LAUNCH: grid=1 block=32 args=in:float32[132],out:float32[128]
__global__ void shifted(const float *in, float *out) {
    float4 v = *reinterpret_cast<const float4 *>(in + 4 * threadIdx.x + 1);        // HAZARD: misaligned
    reinterpret_cast<float4 *>(out)[threadIdx.x] = v;
}
