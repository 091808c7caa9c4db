// Wrong: with an odd row length every second row starts at no address of a float2.
// LAUNCH: grid=1 block=16,4 args=in:float32[140],out:float32[64],width:int32=33
__global__ void rows(const float *in, float *out, int width) {
    const float *row = in + threadIdx.y * width;
    float2 v = __ldg(&reinterpret_cast<const float2 *>(row)[threadIdx.x]);         // HAZARD: misaligned
    out[threadIdx.y * 16 + threadIdx.x] = v.x * v.y;
}
