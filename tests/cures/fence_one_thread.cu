// Wrong: thread 0 executes the fence before the barrier, so it orders only what thread 0 has stored.
// LAUNCH: grid=4 block=64 args=x:float32[256],part:float32[256],out:float32[1],done:uint32[1]
// SAYS: put __syncthreads() between the write and that __threadfence()
__global__ void total(const float *x, float *part, float *out, unsigned *done) {
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[i] = x[i] * x[i];  // HAZARD: missing-fence
#ifdef MENDED
    __syncthreads();
#endif
    if (threadIdx.x == 0) __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        float s = 0;
        for (int k = 0; k < gridDim.x * blockDim.x; k++) s += part[k];
        out[0] = s;
    }
}
