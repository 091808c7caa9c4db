// Wrong: with an odd row length every second row starts at no address of a float2.
// LAUNCH: grid=1 block=16,4 args=in:float32[140],out:float32[128],width:int32=33
__global__ void rows(const float *in, float *out, int width) {
    const float *row = in + threadIdx.y * width;
    float2 v = reinterpret_cast<const float2 *>(row)[threadIdx.x];                 // HAZARD: misaligned
    reinterpret_cast<float2 *>(out)[threadIdx.y * 16 + threadIdx.x] = v;
}
