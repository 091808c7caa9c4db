// Losses by a gather of probabilities.
// run: -g 'cdiv(N,32)' -b 32 --arg 'losses=float32[N]:empty' --arg 'probs=float32[N,100]:random'
//      --arg 'targets=int32[N]:random' --arg N=40 --arg V=100
//      --expect 'losses=-np.log(probs[np.arange(40),targets])' --rtol 1e-4
// expect: ok
__global__ void crossentropy(float *losses, const float *probs, const int *targets, int N, int V) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) losses[i] = -logf(probs[i * V + targets[i]]);
}
