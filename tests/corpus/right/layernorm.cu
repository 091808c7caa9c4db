// Layer normalisation of each row, a warp a row, by butterfly shuffles.
__device__ float warp_sum(float v) {
    for (int lane = 16; lane > 0; lane /= 2) v += __shfl_xor_sync(0xffffffffu, v, lane);
    return v;
}
__global__ void layernorm(const float *in, const float *gain, const float *bias, float *out, int rows, int columns) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    in += row * columns;
    out += row * columns;
    float sum = 0, squares = 0;
    for (int i = threadIdx.x; i < columns; i += 32) sum += in[i];
    float mean = warp_sum(sum) / columns;
    for (int i = threadIdx.x; i < columns; i += 32) squares += (in[i] - mean) * (in[i] - mean);
    float scale = rsqrtf(warp_sum(squares) / columns + 1e-5f);
    for (int i = threadIdx.x; i < columns; i += 32) out[i] = (in[i] - mean) * scale * gain[i] + bias[i];
}
