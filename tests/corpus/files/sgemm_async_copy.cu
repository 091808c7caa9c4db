// Shared memory is filled by asynchronous copies.
// run: -k tile_copy -g 4 -b 64 --arg 'in=float32[1024]:random' --arg 'out=float32[1024]:empty' --expect 'out=2*in'
// expect: ok
#include <cuda_pipeline.h>

__global__ void tile_copy(const float *in, float *out) {
    __shared__ alignas(16) float tile[256];
    int at = blockIdx.x * 256 + threadIdx.x * 4;
    __pipeline_memcpy_async(&tile[threadIdx.x * 4], &in[at], 16);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += 64) out[blockIdx.x * 256 + i] = 2.0f * tile[i];
}
