// Wrong: thread 0 counts its block as done while other threads may still store.
// LAUNCH: grid=4 block=64 args=x:int32[256],part:int32[256],out:int32[1],done:uint32[1]
// SAYS: another thread announces it, and no barrier stands between line 7 and its atomic or flag
__global__ void total(const int *x, int *part, int *out, unsigned *done) {
    __shared__ bool last;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    part[i] = x[i] * x[i];
    __threadfence();
#ifdef MENDED
    __syncthreads();
#endif
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) {
        __threadfence();
        int s = 0;
        for (int k = 0; k < gridDim.x * blockDim.x; k++) s += part[k];  // HAZARD: race
        out[0] = s;
    }
}
