// A block's scan of warps' scans.
// run: -g 3 -b 256 --arg 'x=int32[768]:random' --expect 'x=np.ravel(np.cumsum(np.reshape(x0,(3,256)),axis=1))'
// expect: ok
__device__ __forceinline__ int warp_scan(int v) {
    int lane = threadIdx.x & 31;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        int up = __shfl_up_sync(0xffffffffu, v, d);
        if (lane >= d) v += up;
    }
    return v;
}

__global__ void block_scan(int *x) {
    __shared__ int sums[8];
    int i = blockIdx.x * blockDim.x + threadIdx.x, warp = threadIdx.x / 32;
    int v = warp_scan(x[i]);
    if (threadIdx.x % 32 == 31) sums[warp] = v;
    __syncthreads();
    if (warp == 0) {
        int s = threadIdx.x < 8 ? sums[threadIdx.x] : 0;
        s = warp_scan(s);
        if (threadIdx.x < 8) sums[threadIdx.x] = s;
    }
    __syncthreads();
    if (warp > 0) v += sums[warp - 1];
    x[i] = v;
}
