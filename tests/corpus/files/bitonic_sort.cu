// Bitonic sort in shared memory.
// run: -k bitonicSort -g 2 -b 64 --arg 'values=int32[128]:random'
//      --expect 'values=np.ravel(np.sort(np.reshape(values0,(2,64)),axis=1))'
// expect: ok
#define NUM 64
__device__ inline void swap(int &a, int &b) {
    int tmp = a;
    a = b;
    b = tmp;
}

__global__ static void bitonicSort(int *values) {
    __shared__ int shared[NUM];
    const unsigned int tid = threadIdx.x;
    values += blockIdx.x * NUM;
    shared[tid] = values[tid];
    __syncthreads();
    for (unsigned int k = 2; k <= NUM; k *= 2) {
        for (unsigned int j = k / 2; j > 0; j /= 2) {
            unsigned int ixj = tid ^ j;
            if (ixj > tid) {
                if ((tid & k) == 0) {
                    if (shared[tid] > shared[ixj]) swap(shared[tid], shared[ixj]);
                } else {
                    if (shared[tid] < shared[ixj]) swap(shared[tid], shared[ixj]);
                }
            }
            __syncthreads();
        }
    }
    values[tid] = shared[tid];
}
