// A Jacobi step with the largest change by an atomic on the bits of a float.
// run: -k jacobi -g 4 -b 32 --arg 'b=float32[128]:random' --arg 'x=float32[128]:zeros' --arg 'y=float32[128]:empty'
//      --arg 'change=int32[1]:zeros' --expect 'y=b/4'
// expect: ok
__device__ void atomic_max(int *address, float value) { atomicMax(address, __float_as_int(value)); }

__global__ void jacobi(const float *b, const float *x, float *y, int *change) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    float left = i > 0 ? x[i - 1] : 0, right = i < n - 1 ? x[i + 1] : 0;
    y[i] = (b[i] + left + right) * 0.25f;
    atomic_max(change, fabsf(y[i] - x[i]));
}
