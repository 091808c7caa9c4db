// Wrong: what cp.async copies is read before it is waited for.
// LAUNCH: grid=1 block=64 args=x:float32[64],y:float32[64]
// SAYS: let the copying thread wait for its copies before line 13 (__pipeline_wait_prior() or cp.async.wait_group)
#include <cuda_pipeline.h>
__global__ void copy(const float *x, float *y) {
    __shared__ float s[64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], &x[t], 4);
    __pipeline_commit();
#ifdef MENDED
    __pipeline_wait_prior(0);
#endif
    y[t] = s[t];  // HAZARD: race
}
