// A time loop that swaps its pointers: after an odd number of steps the second array has the result.
// run: --step 'step<<<cdiv(n,32), 32>>>(a, b, n) * 3 swap(a, b)' --arg 'a=float32[n]:i0' --arg 'b=float32[n]:zeros'
//      --arg n=64 --expect 'b=np.arange(n)'
// expect: ok
#include <utility>
__global__ void step(const float *a, float *b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] = i == 0 || i == n - 1 ? a[i] : 0.5f * (a[i - 1] + a[i + 1]);
}
void simulate(float *a, float *b, int n) {
    for (int t = 0; t < 3; ++t) {
        step<<<2, 32>>>(a, b, n);
        std::swap(a, b);
    }
}
