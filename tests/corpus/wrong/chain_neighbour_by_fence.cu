// Wrong: a fence says nothing of whether the neighbour has written yet.
// LAUNCH: grid=8 block=32 args=x:int32[256],a:int32[256],y:int32[256]
__global__ void shift(const int *x, int *a, int *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    a[i] = x[i] + 100;
    __threadfence();
    y[i] = a[(i + blockDim.x) % n];              // HAZARD: race
}
