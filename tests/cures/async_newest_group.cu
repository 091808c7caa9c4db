// Wrong: the last wait leaves the last group pending.
// LAUNCH: grid=1 block=64 args=x:float32[512],y:float32[64],n:int32=8
// SAYS: after the last copy wait for all groups, by __pipeline_wait_prior(0)
#include <cuda_pipeline.h>
__global__ void sums(const float *x, float *y, int n) {
    __shared__ float s[2][64];
    int t = threadIdx.x;
    float sum = 0;
    __pipeline_memcpy_async(&s[0][t], &x[t], 4);
    __pipeline_commit();
    for (int k = 0; k < n; ++k) {
        if (k + 1 < n) {
            __pipeline_memcpy_async(&s[(k + 1) & 1][t], &x[(k + 1) * 64 + t], 4);
            __pipeline_commit();
        }
#ifdef MENDED
        if (k + 1 == n) __pipeline_wait_prior(0); else
#endif
        __pipeline_wait_prior(1);
        sum += s[k & 1][t];  // HAZARD: race
    }
    y[t] = sum;
}
