// Wrong: rows of three floats are read by fours.
// LAUNCH: grid=1 block=32 args=x:float32[128],y:float32[32]
// SAYS: whose address is not a multiple of 16
__global__ void rows(const float *x, float *y) {
    int t = threadIdx.x;
#ifdef MENDED
    y[t] = x[3 * t] + x[3 * t + 1] + x[3 * t + 2];
#else
    float4 v = *(const float4 *)(x + 3 * t);  // HAZARD: misaligned
    y[t] = v.x + v.y + v.z;
#endif
}
