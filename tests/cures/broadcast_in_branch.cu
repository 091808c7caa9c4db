// Wrong: one thread computes what all read, with no barrier behind the branch.
// LAUNCH: grid=2 block=96 args=x:float32[96],y:float32[192]
// SAYS: Put __syncthreads() between line 11 and line 15, outside of the condition in line 6, where all threads of the block
__global__ void scale(const float *x, float *y) {
    __shared__ float mean;
    if (threadIdx.x == 0) {
        float sum = 0;
        for (int i = 0; i < 96; ++i)
            sum += x[i];
        mean = sum / 96;  // HAZARD: race
    }
#ifdef MENDED
    __syncthreads();
#endif
    y[blockIdx.x * 96 + threadIdx.x] = x[threadIdx.x] / mean;  // HAZARD: race
}
