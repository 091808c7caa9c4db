// Wrong: each thread waits for its own copy and reads another's.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: Put __syncthreads() between line 8 and line 14, after the wait for the copy
#include <cuda_pipeline.h>
__global__ void reverse(const float *x, float *y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], &x[t], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
#ifdef MENDED
    __syncthreads();
#endif
    y[t] = s[63 - t];  // HAZARD: race
}
