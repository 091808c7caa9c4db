// Softmax of rows in one pass over maximum and sum; a warp a row.
// run: -k softmax_forward -g 'cdiv(N,4)' -b '32,4' --arg 'out=float32[N,C]:empty' --arg 'inp=float32[N,C]:random'
//      --arg N=6 --arg C=50 --expect 'out=np.exp(inp)/np.sum(np.exp(inp),axis=1,keepdims=True)'
// expect: ok
#include <float.h>
#include "common.h"

__global__ void softmax_forward(float *out, const float *inp, int N, int C) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= N) return;
    const float *x = inp + row * C;
    float maxval = -FLT_MAX, sum = 0.0f;
    for (int i = threadIdx.x; i < C; i += 32) {
        float before = maxval;
        maxval = fmaxf(maxval, x[i]);
        sum = sum * expf(before - maxval) + expf(x[i] - maxval);
    }
    for (int offset = 16; offset > 0; offset /= 2) {
        float m = __shfl_xor_sync(0xFFFFFFFF, maxval, offset), s = __shfl_xor_sync(0xFFFFFFFF, sum, offset);
        float top = fmaxf(maxval, m);
        sum = sum * expf(maxval - top) + s * expf(m - top);
        maxval = top;
    }
    for (int i = threadIdx.x; i < C; i += 32) out[row * C + i] = expf(x[i] - maxval) / sum;
}

int main(int argc, char **argv) {
    srand(0);
    float *inp = make_random_float(6 * 50);
    cudaCheck(cudaSetDevice(0));
    validate_result(inp, inp, "out", 300, 1e-4f);
}
