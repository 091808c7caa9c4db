// A bandwidth test whose output nobody expects: it runs, unverified.
// run: -k 'stream_copy<float4>' -g 2 -b 32 --arg 'a=float32[256]:random' --arg 'b=float32[256]:empty' --arg len=64
// expect: ok
template <typename T> __global__ void stream_copy(T const *__restrict__ const a, T *__restrict__ const b, size_t len) {
    size_t idx = (size_t)threadIdx.x + (size_t)blockIdx.x * (size_t)blockDim.x;
    if (idx < len) b[idx] = a[idx];
}
template __global__ void stream_copy<double>(double const *__restrict__ const, double *__restrict__ const, size_t);
