// A reduction without host code, whose block is what its shared array has room for; the line that is suggested has it.
// run: -k partial_sums --arg 'x=float32[n]:random' --arg 'out=float32[32]:zeros' --arg n=4096
// expect: refused: --grid 'cdiv\(n,128\)' --block 128
// then: -k partial_sums -g 32 -b 128 --arg 'x=float32[n]:random' --arg 'out=float32[32]:empty'
//       --arg n=4096 --expect 'out=np.sum(np.reshape(x,(32,128)),axis=1)'
#define PARTIAL_THREADS 128

__global__ void partial_sums(const float *x, float *out, int n)
{
    __shared__ float partial[PARTIAL_THREADS];
    int tid = threadIdx.x, i = blockIdx.x * blockDim.x + tid;
    partial[tid] = i < n ? x[i] : 0.0f;
    __syncthreads();
    for (int half = PARTIAL_THREADS / 2; half > 0; half /= 2) {
        if (tid < half) partial[tid] += partial[tid + half];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = partial[0];
}
