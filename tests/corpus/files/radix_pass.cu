// One pass of a radix sort by one bit, stable within a block.
// run: -k split -g 1 -b 128 --arg 'keys=uint32[128]:random' --arg bit=0
//      --expect 'keys=np.concatenate((keys0[keys0%2==0],keys0[keys0%2==1]))'
// expect: ok
__global__ void split(unsigned int *keys, int bit) {
    __shared__ unsigned int zeros[128];
    unsigned int key = keys[threadIdx.x], b = (key >> bit) & 1;
    zeros[threadIdx.x] = 1 - b;
    __syncthreads();
    for (int d = 1; d < 128; d <<= 1) {
        unsigned int add = threadIdx.x >= d ? zeros[threadIdx.x - d] : 0;
        __syncthreads();
        zeros[threadIdx.x] += add;
        __syncthreads();
    }
    unsigned int total = zeros[127], before = zeros[threadIdx.x] - (1 - b);
    keys[b ? total + threadIdx.x - before : before] = key;
}
