// Attention for one query row a block; scores in dynamic shared memory.
// run: -k attention -g T -b 32 --shared '4*T' --arg 'Q=float32[T,D]:random' --arg 'K=float32[T,D]:random'
//      --arg 'V=float32[T,D]:random' --arg 'O=float32[T,D]:empty' --arg T=24 --arg D=16
//      --expect 'O=(np.exp(Q@np.transpose(K)/4)/np.sum(np.exp(Q@np.transpose(K)/4),axis=1,keepdims=True))@V' --rtol 1e-4
// expect: ok
__global__ void attention(const float *Q, const float *K, const float *V, float *O, int T, int D) {
    extern __shared__ float scores[];
    int q = blockIdx.x;
    for (int k = threadIdx.x; k < T; k += blockDim.x) {
        float s = 0;
        for (int d = 0; d < D; d++) s += Q[q * D + d] * K[k * D + d];
        scores[k] = expf(s * rsqrtf((float)D));
    }
    __syncthreads();
    float total = 0;
    for (int k = 0; k < T; k++) total += scores[k];
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float o = 0;
        for (int k = 0; k < T; k++) o += scores[k] * V[k * D + d];
        O[q * D + d] = o / total;
    }
}
