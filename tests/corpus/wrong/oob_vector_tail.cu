// Wrong: 16-byte loads cover 128 floats where there are 126.
// LAUNCH: grid=1 block=32 args=in:float32[126],out:float32[128]
__global__ void copy4(const float *in, float *out) {
    float4 v = reinterpret_cast<const float4 *>(in)[threadIdx.x];          // HAZARD: out-of-bounds
    reinterpret_cast<float4 *>(out)[threadIdx.x] = v;
}
