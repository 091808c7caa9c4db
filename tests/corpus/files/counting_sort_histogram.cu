// Counting sort's histogram, private in shared memory, then merged.
// run: -k histogram256 -g 4 -b 64 --arg 'data=uint8[n]:random' --arg 'bins=uint32[256]:zeros' --arg n=1000
//      --expect 'bins=np.bincount(data,minlength=256)'
// expect: ok
typedef unsigned char byte;
typedef unsigned int uint;

__global__ void histogram256(const byte *data, uint *bins, size_t n) {
    __shared__ uint local[256];
    for (uint i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) atomicAdd(&local[data[i]], 1);
    __syncthreads();
    for (uint i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&bins[i], local[i]);
}
