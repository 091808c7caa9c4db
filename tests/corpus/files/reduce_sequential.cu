// Sequential addressing, and the first addition while loading.
// run: -k 'reduce3<float>' -g 'cdiv(n,256)' -b 128 --shared '128*4' --arg 'in=float32[n]:random'
//      --arg 'out=float32[4]:empty' --arg n=1000
//      --expect 'out=np.sum(np.reshape(np.pad(in,(0,24)),(4,256)),axis=1)' --rtol 1e-4
// expect: ok
template <class T> struct SharedMemory {
    __device__ inline operator T *() {
        extern __shared__ int __smem[];
        return (T *)__smem;
    }
};

template <class T> __global__ void reduce3(T *in, T *out, unsigned int n) {
    T *sdata = SharedMemory<T>();
    unsigned int tid = threadIdx.x, i = blockIdx.x * (blockDim.x * 2) + threadIdx.x;
    T sum = i < n ? in[i] : 0;
    if (i + blockDim.x < n) sum += in[i + blockDim.x];
    sdata[tid] = sum;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] = sum = sum + sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) out[blockIdx.x] = sum;
}
