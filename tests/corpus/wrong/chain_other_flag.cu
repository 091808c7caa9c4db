// Wrong: the third block waits for the second and reads what the first writes too.
// LAUNCH: grid=3 block=32 args=a:int32[2],y:int32[1]
__device__ int flag[2];
__global__ void three(int *a, int *y) {
    int b = blockIdx.x;
    if (threadIdx.x) return;
    if (b < 2) {
        a[b] = b + 5;
        __threadfence();
        atomicExch(&flag[b], 1);
    } else {
        while (atomicAdd(&flag[1], 0) == 0) ;
        __threadfence();
        y[0] = a[0] + a[1];                      // HAZARD: race
    }
}
