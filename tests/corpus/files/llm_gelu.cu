// GELU by tanh, element by element.
// run: -g 'cdiv(N,128)' -b 128 --arg 'out=float32[N]:empty' --arg 'inp=float32[N]:random' --arg N=400
//      --expect 'out=0.5*inp*(1+np.tanh(np.sqrt(2/np.pi)*(inp+0.044715*inp*inp*inp)))'
// expect: ok
#include <cmath>
#define GELU_SCALING_FACTOR sqrtf(2.0f / M_PI)

__global__ void gelu_forward(float *out, const float *inp, int N) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        float xi = inp[i];
        float cube = 0.044715f * xi * xi * xi;
        out[i] = 0.5f * xi * (1.0f + tanhf(GELU_SCALING_FACTOR * (xi + cube)));
    }
}
