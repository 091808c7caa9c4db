// A struct by value with a long array in it: one value fills it.
// run: -g 2 -b 64 --arg 'x=float32[n]:random' --arg 'y=float32[n]:empty' --arg n=100
//      --arg 'weights={taps: 0.125, count: 8, bias: [1, 2, 3]}' --expect 'y[:93]=6+0.125*(x[:93]+x[1:94]+x[2:95]+x[3:96]+x[4:97]+x[5:98]+x[6:99]+x[7:])'
// expect: ok
struct Weights {
    float taps[64];
    int count;
    short bias[3];
};

__global__ void weighted(const float *x, float *y, int n, Weights weights) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = weights.bias[0] + weights.bias[1] + weights.bias[2];
    for (int tap = 0; tap < weights.count && i + tap < n; ++tap) sum += weights.taps[tap] * x[i + tap];
    y[i] = sum;
}
