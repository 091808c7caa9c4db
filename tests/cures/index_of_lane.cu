// Wrong: all warps use the elements of the first.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: the index is the same in all warps: if each thread has its own element, compute it from threadIdx.x, not from the lane
__global__ void k(const float *x, float *y) {
    __shared__ float s[64];
#ifdef MENDED
    int t = threadIdx.x;
#else
    int t = threadIdx.x % 32;
#endif
    s[t] = x[threadIdx.x];  // HAZARD: race
    __syncthreads();
    y[threadIdx.x] = s[t ^ 1];
}
