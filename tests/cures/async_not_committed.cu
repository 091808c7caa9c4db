// Wrong: the last copies are in no group.
// LAUNCH: grid=1 block=64 args=x:float32[512],y:float32[64]
// SAYS: put __pipeline_commit() (or cp.async.commit_group) after line 10, before the wait
#include <cuda_pipeline.h>
__global__ void copy(const float *x, float *y) {
    __shared__ float s[128];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], &x[t], 4);
    __pipeline_commit();
    __pipeline_memcpy_async(&s[64 + t], &x[64 + t], 4);
#ifdef MENDED
    __pipeline_commit();
#endif
    __pipeline_wait_prior(0);
    __syncthreads();
    y[t] = s[127 - t] + s[63 - t];  // HAZARD: race
}
