// A tensor map under another name, and a wait for the kernel in front of this one.
// run: -g 2 -b 32 --arg 'tiles=tensormap(float32[16,32]:random, box=8x32)' --arg 'out=float32[16,32]:empty'
//      --expect 'out=2*tiles'
// expect: ok
#include <cuda.h>
#include <cuda_runtime.h>
#include <cstdint>
using Tiles = CUtensorMap;

__global__ void doubled(const __grid_constant__ Tiles tiles, float *out) {
    __shared__ alignas(128) float tile[8][32];
    __shared__ uint64_t arrived;
    uint32_t barrier = __cvta_generic_to_shared(&arrived), there = __cvta_generic_to_shared(tile);
    cudaGridDependencySynchronize();
    if (threadIdx.x == 0) {
        asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(barrier));
        asm volatile("fence.proxy.async;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(8 * 32 * 4));
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     ::"r"(there), "l"(&tiles), "r"(0), "r"(8 * (int)blockIdx.x), "r"(barrier) : "memory");
    }
    __syncthreads();
    asm volatile("{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared.b64 done, [%0], 0;\n@!done bra again;\n}"
                 ::"r"(barrier) : "memory");
    for (int row = 0; row < 8; ++row)
        out[(8 * blockIdx.x + row) * 32 + threadIdx.x] = 2 * tile[row][threadIdx.x];
    cudaTriggerProgrammaticLaunchCompletion();
}
