// A book's dot product: shared cache, partial sums for the host to add.
// run: -k dot -g 8 -b 64 --arg 'a=float32[n]:random' --arg 'b=float32[n]:random' --arg 'c=float32[8]:empty'
//      --arg n=512 --expect 'c=np.sum(np.reshape(a*b,(8,64)),axis=1)'
// expect: ok
#define imin(a, b) (a < b ? a : b)
const int N = 512;
const int threadsPerBlock = 64;
const int blocksPerGrid = imin(32, (N + threadsPerBlock - 1) / threadsPerBlock);

__global__ void dot(float *a, float *b, float *c, int n) {
    __shared__ float cache[threadsPerBlock];
    int tid = threadIdx.x + blockIdx.x * blockDim.x, cacheIndex = threadIdx.x;
    float temp = 0;
    while (tid < n) {
        temp += a[tid] * b[tid];
        tid += blockDim.x * gridDim.x;
    }
    cache[cacheIndex] = temp;
    __syncthreads();
    for (int i = blockDim.x / 2; i != 0; i /= 2) {
        if (cacheIndex < i) cache[cacheIndex] += cache[cacheIndex + i];
        __syncthreads();
    }
    if (cacheIndex == 0) c[blockIdx.x] = cache[0];
}
