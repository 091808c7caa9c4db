// One block waits for what another writes after a barrier of its own.
// run: -k hand_over -g 2 -b 32 --arg 'data=int32[32]:zeros' --arg 'out=int32[32]:zeros' --arg 'flag=int32[1]:zeros'
//      --expect 'out=np.arange(32)*3'
// expect: ok
#include <cstdio>

__global__ void hand_over(volatile int *data, int *out, volatile int *flag) {
    if (blockIdx.x == 0) {
        data[threadIdx.x] = threadIdx.x * 3;
        __threadfence();
        __syncthreads();
        if (threadIdx.x == 0) *flag = 1;
    } else {
        while (*flag == 0) {}
        __syncthreads();
        out[threadIdx.x] = data[threadIdx.x];
    }
}

int main() {
    int *p;
    cudaMalloc(&p, 260);
    hand_over<<<2, 32>>>(p, p + 32, p + 64);
    printf("%s\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
