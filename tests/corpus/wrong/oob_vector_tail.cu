// Wrong: 16-byte loads cover 128 floats where there are 126.
// LAUNCH: grid=1 block=32 args=in:float32[126],out:float32[32]
__global__ void sum4(const float *in, float *out) {
    const float4 *in4 = reinterpret_cast<const float4 *>(in);
    float4 v = __ldg(&in4[threadIdx.x]);         // HAZARD: out-of-bounds
    out[threadIdx.x] = v.x + v.y + v.z + v.w;
}
