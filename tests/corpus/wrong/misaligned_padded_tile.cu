// Wrong: a row padded to 33 floats breaks the alignment that 16-byte stores into the tile need.
// LAUNCH: grid=1 block=8,4 args=in:float32[128],out:float32[128]
__global__ void tile(const float *in, float *out) {
    __shared__ __align__(16) float s[4][33];
    int x = threadIdx.x, y = threadIdx.y;
    float4 v = reinterpret_cast<const float4 *>(in)[y * 8 + x];
    *reinterpret_cast<float4 *>(&s[y][4 * x]) = v;                                 // HAZARD: misaligned
    __syncthreads();
    if (y == 0) reinterpret_cast<float4 *>(out)[x] = make_float4(s[0][4 * x], s[0][4 * x + 1], s[0][4 * x + 2], v.w);
}
