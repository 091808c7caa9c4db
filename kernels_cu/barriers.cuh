// Barriers in shared memory, and fetches by the tensor memory accelerator that they count (compute capability 9.0).

#include <cuda.h>

// A barrier counts arrivals and missing bytes. A phase ends when nothing is missing. The parity of phases alternates.
__device__ __forceinline__ void make_barrier(unsigned barrier, unsigned arrivals)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
#endif
}

// Waits for the end of the phase with this parity.
__device__ __forceinline__ void wait_phase(unsigned barrier, unsigned parity)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .pred over;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 over, [%0], %1;\n"
                 "@!over bra again;}" ::"r"(barrier), "r"(parity) : "memory");
#endif
}

__device__ __forceinline__ void arrive(unsigned barrier)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#endif
}

// Arrives, and adds to the bytes that the phase waits for.
__device__ __forceinline__ void expect_bytes(unsigned barrier, unsigned bytes)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#endif
}

// Fetches the box of a matrix that begins at (row, col); the barrier counts its bytes when they arrive. Elements
// outside of the matrix become zeros. With 2 BLOCKS of a cluster, both blocks get the box at the same address of their
// shared memory, and the barriers of both count it.
template <int BLOCKS = 1>
__device__ __forceinline__ void fetch_box(unsigned to, const CUtensorMap &map, unsigned barrier, int row, int col)
{
#if __CUDA_ARCH__ >= 900
    if (BLOCKS == 1)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     " [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(&map), "r"(col), "r"(row), "r"(barrier)
                     : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                     ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(&map), "r"(col), "r"(row),
                     "r"(barrier), "h"((unsigned short)3)
                     : "memory");
#endif
}

// Arrives at the barrier that has the same address in the shared memory of block `rank` of the cluster.
__device__ __forceinline__ void arrive_at(unsigned barrier, unsigned rank)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("{.reg .b32 there;\n"
                 "mapa.shared::cluster.u32 there, %0, %1;\n"
                 "mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(barrier), "r"(rank) : "memory");
#endif
}

// Waits for the other threads of the block, or of both BLOCKS of a cluster.
template <int BLOCKS> __device__ __forceinline__ void meet()
{
#if __CUDA_ARCH__ >= 900
    if (BLOCKS > 1) {
        asm volatile("barrier.cluster.arrive.release.aligned;\n"
                     "barrier.cluster.wait.acquire.aligned;" ::: "memory");
        return;
    }
#endif
    __syncthreads();
}
