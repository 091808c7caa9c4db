// Wrong: the neighbour's value was written in this launch, and __ldg() may still give what was there before it.
// LAUNCH: grid=2 block=64 args=x:float32[128],y:float32[128]
__global__ void smooth(float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    x[i] *= 0.5f;
    __syncthreads();
    int left = threadIdx.x > 0 ? i - 1 : i;
    y[i] = x[i] + __ldg(x + left);               // HAZARD: stale-read
}
