// Layer norm, mean and reciprocal deviation kept for the way back.
// run: -k layernorm_forward -g N -b 64 --arg 'out=float32[N,C]:empty' --arg 'mean=float32[N]:empty'
//      --arg 'rstd=float32[N]:empty' --arg 'inp=float32[N,C]:random' --arg 'weight=float32[C]:random'
//      --arg 'bias=float32[C]:random' --arg N=5 --arg C=96
//      --expect 'mean=np.mean(inp,axis=1)' --expect 'rstd=1/np.sqrt(np.var(inp,axis=1)+1e-5)' --rtol 1e-3 --atol 1e-4
//      --expect 'out=(inp-np.mean(inp,axis=1,keepdims=True))/np.sqrt(np.var(inp,axis=1,keepdims=True)+1e-5)*weight+bias'
// expect: ok
__device__ float block_sum(float v) {
    __shared__ float shared[2];
    for (int o = 16; o > 0; o >>= 1) v += __shfl_down_sync(0xffffffff, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = v;
    __syncthreads();
    return shared[0] + shared[1];
}

__global__ void layernorm_forward(float *__restrict__ out, float *__restrict__ mean, float *__restrict__ rstd,
                                  const float *__restrict__ inp, const float *__restrict__ weight,
                                  const float *__restrict__ bias, int N, int C) {
    const float *x = inp + blockIdx.x * C;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) sum += x[i];
    float m = block_sum(sum) / C;
    sum = 0.0f;
    for (int i = threadIdx.x; i < C; i += blockDim.x) sum += (x[i] - m) * (x[i] - m);
    float s = rsqrtf(block_sum(sum) / C + 1e-5f);
    if (threadIdx.x == 0) __stcs(mean + blockIdx.x, m), __stcs(rstd + blockIdx.x, s);
    for (int c = threadIdx.x; c < C; c += blockDim.x) out[blockIdx.x * C + c] = s * (__ldcs(x + c) - m) * weight[c] + bias[c];
}
