// Wrong: no wgmma.fence stands between the registers of the sums and the first product that adds to them.
// LAUNCH: grid=1 block=128 args=out:float32[512]
#include <cuda_fp16.h>

extern "C" __global__ void wgmma_without_fence(float *out)
{
    __shared__ __align__(128) __half tile[1280];
    for (int i = threadIdx.x; i < 1280; i += 128) tile[i] = __float2half(i % 7);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    unsigned long long at = __cvta_generic_to_shared(tile) >> 4 | 8ull << 16 | 16ull << 32, b = at + 128;
    float d[4] = {};
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;" // HAZARD: missing-fence
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(at), "l"(b));
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    out[128 + threadIdx.x] = d[1];
}
