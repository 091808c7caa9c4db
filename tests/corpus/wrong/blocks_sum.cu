// Wrong: blocks add to one number without atomics, each from what it read before the others wrote.
// LAUNCH: grid=4 block=32 args=x:float32[128],total:float32[1]
__global__ void sum(const float *x, float *total) {
    __shared__ float part[32];
    part[threadIdx.x] = x[blockIdx.x * 32 + threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) {
        float own = 0.0f;
        for (int i = 0; i < 32; i++)
            own += part[i];
        *total += own + 1.0f;                    // HAZARD: race
    }
}
