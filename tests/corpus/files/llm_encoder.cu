// Token and position embeddings added.
// run: -k encoder_forward -g 'cdiv(B*T*C,64)' -b 64 --arg 'out=float32[B,T,C]:empty' --arg 'inp=int32[B,T]:random'
//      --arg 'wte=float32[100,C]:random' --arg 'wpe=float32[T,C]:random' --arg B=2 --arg T=8 --arg C=16
//      --expect 'out=wte[inp]+wpe'
// expect: ok
__global__ void encoder_forward(float *out, const int *inp, const float *wte, const float *wpe, int B, int T, int C) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < B * T * C) {
        int bt = idx / C, t = bt % T, c = idx % C;
        out[idx] = wte[inp[bt] * C + c] + wpe[t * C + c];
    }
}
