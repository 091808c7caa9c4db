// 16-byte stores into shared memory, read back as single floats after the barrier.
__global__ void spread(const float4 *in, float *out) {
    __shared__ float4 s[32];
    int t = threadIdx.x;
    if (t < 32) s[t] = in[blockIdx.x * 32 + t];
    __syncthreads();
    const float *single = reinterpret_cast<const float *>(s);
    out[blockIdx.x * 128 + t] = single[127 - t];
}
