// A header that is nowhere and a sign that is missing: the error is the sign, whatever else a compiler finds.
// run: -g 1 -b 32 --arg 'x=float32[32]:random' --arg 'y=float32[1]:empty'
// expect: refused: header_and_sign_missing.cu:14: error: expected a ";"
#include "block_tools.cuh"
#include "more_tools.cuh"

__global__ void total(const float *x, float *y) {
    using Sum = cub::WarpReduce<float>;
    __shared__ typename Sum::TempStorage storage;
    uint16_t lane = threadIdx.x;
    float sum = Sum(storage).Sum(x[lane]);
    if (lane == 0) {
        *y = sum
    }
}
