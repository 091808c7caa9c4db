// A reduction of two launches, as main() has them.
// run: --step 'partial<<<cdiv(n,64), 64>>>(x, sums, n)' --step 'partial<<<1, 64>>>(sums, total, cdiv(n,64))'
//      --arg 'x=float32[n]:random' --arg 'sums=float32[cdiv(n,64)]:empty' --arg 'total=float32[1]:empty' --arg n=1000
//      --expect 'total=np.sum(x)'
// expect: ok
__global__ void partial(const float *in, float *out, int n) {
    __shared__ float s[64];
    int i = blockIdx.x * 64 + threadIdx.x;
    s[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int k = 32; k > 0; k /= 2) {
        if (threadIdx.x < k) s[threadIdx.x] += s[threadIdx.x + k];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = s[0];
}
int main() {
    float *x, *sums, *total;
    cudaMalloc(&x, 4000), cudaMalloc(&sums, 64), cudaMalloc(&total, 4);
    partial<<<16, 64>>>(x, sums, 1000);
    partial<<<1, 64>>>(sums, total, 16);
}
