// A size that only the build gives: the error names the option, and with it the file runs.
// run: -g 1 -b 64 --arg 'x=float32[64]:random' --arg 'y=float32[1]:empty' --expect 'y=np.sum(x)'
// expect: refused: give the macros of your build: -D WIDTH_OF_ROW=VALUE
// then: -D WIDTH_OF_ROW=64 -g 1 -b 64 --arg 'x=float32[64]:random' --arg 'y=float32[1]:empty' --expect 'y=np.sum(x)'
__global__ void total(const float *x, float *y) {
    __shared__ float part[WIDTH_OF_ROW];
    part[threadIdx.x] = x[threadIdx.x];
    for (int stride = WIDTH_OF_ROW / 2; stride > 0; stride /= 2) {
        __syncthreads();
        if (threadIdx.x < stride) part[threadIdx.x] += part[threadIdx.x + stride];
    }
    if (threadIdx.x == 0) *y = part[0];
}
