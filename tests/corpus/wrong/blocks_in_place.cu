// Wrong: a stencil in place waits for its own block, but its outermost threads read what the next block writes.
// LAUNCH: grid=4 block=32 args=x:float32[130]
__global__ void smooth(float *x) {
    int i = blockIdx.x * 32 + threadIdx.x + 1;
    float mean = 0.5f * (x[i - 1] + x[i + 1]);
    __syncthreads();
    x[i] = mean + threadIdx.x + 1.0f;            // HAZARD: race
}
