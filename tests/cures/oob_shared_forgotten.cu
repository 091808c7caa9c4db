// Wrong: the launch gives no dynamic shared memory, and MENDED stands for the launch with it.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: no dynamic shared memory: add --shared BYTES
__global__ void mirror(const float *x, float *y) {
#ifdef MENDED
    __shared__ float s[64];
#else
    extern __shared__ float s[];
#endif
    s[threadIdx.x] = x[threadIdx.x];  // HAZARD: out-of-bounds
    __syncthreads();
    y[threadIdx.x] = s[63 - threadIdx.x];  // HAZARD: out-of-bounds
}
