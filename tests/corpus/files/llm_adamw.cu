// AdamW with a linear interpolation by fma; many scalars.
// run: -g 'cdiv(n,64)' -b 64 --arg 'params=float32[n]:random' --arg 'grads=float32[n]:random' --arg 'm=float32[n]:zeros'
//      --arg 'v=float32[n]:zeros' --arg n=130 --arg lr=0.001 --arg beta1=0.9 --arg beta2=0.999
//      --arg beta1_correction=0.1 --arg beta2_correction=0.001 --arg eps=1e-8 --arg weight_decay=0.01
//      --expect 'params=params0-0.001*(grads/(np.sqrt(grads*grads)+1e-8)+0.01*params0)' --rtol 1e-4
// expect: ok
__device__ inline float lerp(float start, float end, float weight) {
    return fma(weight, end, fma(-weight, start, start));
}

__global__ void adamw(float *params, const float *grads, float *m, float *v, long n, float lr, float beta1, float beta2,
                      float beta1_correction, float beta2_correction, float eps, float weight_decay) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float g = grads[i];
    float mi = m[i] = lerp(g, m[i], beta1), vi = v[i] = lerp(g * g, v[i], beta2);
    mi /= beta1_correction;
    vi /= beta2_correction;
    params[i] -= lr * (mi / (sqrtf(vi) + eps) + weight_decay * params[i]);
}
