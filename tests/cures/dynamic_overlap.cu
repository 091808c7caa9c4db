// Wrong: the second array in the dynamic shared memory begins inside the first.
// LAUNCH: grid=1 block=64 shared=512 args=x:float32[64],y:float32[64]
// SAYS: if they write two arrays, these overlap in the dynamic shared memory: compare their offsets and sizes
__global__ void reverse(const float *x, float *y) {
    extern __shared__ float pool[];
    float *values = pool;
#ifdef MENDED
    int *keys = (int *)(pool + blockDim.x);
#else
    int *keys = (int *)(pool + blockDim.x / 2);
#endif
    int t = threadIdx.x;
    values[t] = x[t];
    keys[t] = 63 - t;  // HAZARD: race
    __syncthreads();
    y[t] = values[keys[t]];
}
