// A warp a row, with a functor for the activation.
// run: -k 'gemv<Relu>' -g 'cdiv(rows,4)' -b '32,4' --arg 'W=float32[rows,cols]:random' --arg 'x=float32[cols]:random'
//      --arg 'bias=float32[rows]:random' --arg 'y=float32[rows]:empty' --arg rows=10 --arg cols=70
//      --expect 'y=np.maximum(W@x-bias,0)' --rtol 1e-4
// expect: ok
struct Relu {
    __device__ float operator()(float v) const { return v > 0 ? v : 0; }
};

template <typename Activation>
__global__ void gemv(const float *W, const float *x, const float *bias, float *y, int rows, int cols) {
    int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) sum = fmaf(W[row * cols + c], x[c], sum);
    for (int o = 16; o; o /= 2) sum += __shfl_xor_sync(0xffffffff, sum, o);
    if (threadIdx.x == 0) y[row] = Activation()(sum - bias[row]);
}
