#pragma once
#include <cuda.h>
#include <cuda_bf16.h>
#include <stdint.h>

__device__ __forceinline__ uint32_t smem(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
__device__ __forceinline__ void bar_init(uint32_t bar, int count)
{
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void bar_expect(uint32_t bar, int bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint32_t bar)
{
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void bar_arrive_at(uint32_t bar, int rank)
{
    asm volatile("{.reg .b32 there;\n mapa.shared::cluster.u32 there, %0, %1;\n"
                 " mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(bar), "r"(rank) : "memory");
}
__device__ __forceinline__ void bar_wait(uint32_t bar, int parity)
{
    asm volatile("{.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void bar_wait_cluster(uint32_t bar, int parity)
{
    asm volatile("{.reg .pred p;\n"
                 "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                 "@!p bra again;}" ::"r"(bar), "r"(parity) : "memory");
}
__device__ __forceinline__ void tma_load(uint32_t to, const void *map, uint32_t bar, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4}], [%2];"
                 ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void tma_load_multi(uint32_t to, const void *map, uint32_t bar, int x, int y, int mask)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;"
                 ::"r"(to), "l"(map), "r"(bar), "r"(x), "r"(y), "h"((unsigned short)mask) : "memory");
}
__device__ __forceinline__ void tma_store(const void *map, uint32_t from, int x, int y)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];"
                 ::"l"(map), "r"(from), "r"(x), "r"(y) : "memory");
}
#define S4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define S16(i) S4(i), S4(i + 4), S4(i + 8), S4(i + 12)
#define S64(i) S16(i), S16(i + 16), S16(i + 32), S16(i + 48)
#define L32 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, " \
            "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define L64 L32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, " \
            "%50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define L128 L64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, " \
            "%83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, " \
            "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, " \
            "%120, %121, %122, %123, %124, %125, %126, %127"
__device__ __forceinline__ void mma(float (&sum)[128], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" L128 "}, %128, %129, 1, 1, 1, 0, 1;"
                 : S64(0), S64(64) : "l"(a), "l"(b));
}
__device__ __forceinline__ void mma(float (&sum)[64], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" L64 "}, %64, %65, 1, 1, 1, 0, 1;"
                 : S64(0) : "l"(a), "l"(b));
}
__device__ __forceinline__ void mma(float (&sum)[32], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" L32 "}, %32, %33, 1, 1, 1, 0, 1;"
                 : S16(0), S16(16) : "l"(a), "l"(b));
}
__device__ __forceinline__ void turned(float (&sum)[128], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" L128 "}, %128, %129, 1, 1, 1, 1, 0;"
                 : S64(0), S64(64) : "l"(a), "l"(b));
}
__device__ __forceinline__ void turned(float (&sum)[64], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" L64 "}, %64, %65, 1, 1, 1, 1, 0;"
                 : S64(0) : "l"(a), "l"(b));
}
__device__ __forceinline__ void turned(float (&sum)[32], uint64_t a, uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" L32 "}, %32, %33, 1, 1, 1, 1, 0;"
                 : S16(0), S16(16) : "l"(a), "l"(b));
}
__device__ __forceinline__ void mma(float (&sum)[128], const unsigned (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" L128 "}, {%128, %129, %130, %131}, %132, 1, 1, 1;"
                 : S64(0), S64(64) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void mma(float (&sum)[64], const unsigned (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" L64 "}, {%64, %65, %66, %67}, %68, 1, 1, 1;"
                 : S64(0) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void mma(float (&sum)[32], const unsigned (&a)[4], uint64_t b)
{
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" L32 "}, {%32, %33, %34, %35}, %36, 1, 1, 1;"
                 : S16(0), S16(16) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void hold(float (&sum)[128]) { asm volatile("" : S64(0), S64(64)::"memory"); }
__device__ __forceinline__ void hold(float (&sum)[64]) { asm volatile("" : S64(0)::"memory"); }
__device__ __forceinline__ void hold(float (&sum)[32]) { asm volatile("" : S16(0), S16(16)::"memory"); }
__device__ __forceinline__ void mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> __device__ __forceinline__ void mma_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory"); }
template <int N> __device__ __forceinline__ void more_registers() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N)); }
template <int N> __device__ __forceinline__ void fewer_registers() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N)); }
__device__ __forceinline__ void group_sync(int id) { asm volatile("bar.sync %0, 128;" ::"r"(id) : "memory"); }
