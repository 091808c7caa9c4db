// Softmax of each row, a block a row: maximum, sum and division over strided elements.
__device__ float block_reduce(float v, float *s, bool maximum) {
    int t = threadIdx.x;
    s[t] = v;
    __syncthreads();
    for (int stride = blockDim.x / 2; stride > 0; stride /= 2) {
        if (t < stride) s[t] = maximum ? fmaxf(s[t], s[t + stride]) : s[t] + s[t + stride];
        __syncthreads();
    }
    float result = s[0];
    __syncthreads();
    return result;
}
__global__ void softmax(const float *in, float *out, int columns) {
    __shared__ float s[64];
    const float *row = in + blockIdx.x * columns;
    float most = -INFINITY, sum = 0;
    for (int i = threadIdx.x; i < columns; i += blockDim.x) most = fmaxf(most, row[i]);
    most = block_reduce(most, s, true);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) sum += expf(row[i] - most);
    sum = block_reduce(sum, s, false);
    for (int i = threadIdx.x; i < columns; i += blockDim.x) out[blockIdx.x * columns + i] = expf(row[i] - most) / sum;
}
