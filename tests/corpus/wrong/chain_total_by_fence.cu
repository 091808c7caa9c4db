// Wrong: every block divides by a total to which others may still add.
// LAUNCH: grid=4 block=32 args=x:float32[128],total:float32[1],y:float32[128]
__global__ void normalise(const float *x, float *total, float *y) {
    int i = blockIdx.x * 32 + threadIdx.x;
    atomicAdd(total, x[i]);
    __threadfence();
    __syncthreads();
    y[i] = x[i] / *total;                        // HAZARD: race
}
