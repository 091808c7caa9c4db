// Completely unrolled by a template of the block, the last warp by shuffles.
// run: -k 'reduce6<int, 256>' -g 2 -b 256 --arg 'in=int32[n]:random' --arg 'out=int32[1]:zeros' --arg n=2000
//      --expect 'out=np.sum(in)'
// expect: ok
template <typename T, unsigned int blockSize> __global__ void reduce6(const T *in, T *out, unsigned int n) {
    __shared__ T sdata[blockSize];
    unsigned int tid = threadIdx.x, stride = blockSize * 2 * gridDim.x;
    T sum = 0;
    for (unsigned int i = blockIdx.x * blockSize * 2 + tid; i < n; i += stride) {
        sum += in[i];
        if (i + blockSize < n) sum += in[i + blockSize];
    }
    sdata[tid] = sum;
    __syncthreads();
    if (blockSize >= 512) { if (tid < 256) sdata[tid] = sum = sum + sdata[tid + 256]; __syncthreads(); }
    if (blockSize >= 256) { if (tid < 128) sdata[tid] = sum = sum + sdata[tid + 128]; __syncthreads(); }
    if (blockSize >= 128) { if (tid < 64) sdata[tid] = sum = sum + sdata[tid + 64]; __syncthreads(); }
    if (tid < 32) {
        sum += sdata[tid + 32];
        for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(0xffffffff, sum, offset);
        if (tid == 0) atomicAdd(out, sum);
    }
}
