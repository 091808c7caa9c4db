// Wrong: the index lacks threadIdx.y.
// LAUNCH: grid=1 block=16,16 args=x:float32[256],y:float32[256]
// SAYS: the index is the same for all threadIdx.y: if each thread has its own element, add threadIdx.y * blockDim.x to it
__global__ void k(const float *x, float *y) {
    __shared__ float s[256];
#ifdef MENDED
    int t = threadIdx.y * 16 + threadIdx.x;
#else
    int t = threadIdx.x;
#endif
    s[t] = x[threadIdx.y * 16 + threadIdx.x];  // HAZARD: race
    __syncthreads();
    y[threadIdx.y * 16 + threadIdx.x] = s[t];
}
