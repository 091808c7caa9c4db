// Wrong: what other threads copy asynchronously is read without a wait.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: let the copying thread wait for its copies before line 14 (__pipeline_wait_prior() or cp.async.wait_group), and put
#include <cuda_pipeline.h>
__global__ void reverse(const float *x, float *y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], &x[t], 4);
    __pipeline_commit();
#ifdef MENDED
    __pipeline_wait_prior(0);
    __syncthreads();
#endif
    y[t] = s[63 - t];  // HAZARD: race
}
