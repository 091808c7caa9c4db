// Wrong: a 16-byte store by one thread and the reads of its parts by four others have no barrier between them.
// LAUNCH: grid=1 block=128 args=in:float32[128],out:float32[128]
__global__ void spread(const float *in, float *out) {
    __shared__ float4 s[32];
    int t = threadIdx.x;
    if (t < 32)
        s[t] = make_float4(in[4 * t], in[4 * t + 1], in[4 * t + 2], in[4 * t + 3]);     // HAZARD: race
    out[t] = reinterpret_cast<const float *>(s)[127 - t];                               // HAZARD: race
}
