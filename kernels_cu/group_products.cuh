// Matrix products by wgmma (compute capability 9.0). A group of four warps multiplies 64 x 8 by 8 x N elements, or
// 64 x 16 by 16 x N elements of 2 bytes. The 64 x N sums stay in the group's registers. The tensor cores read operands
// from shared memory; descriptors say where. An instruction only begins a product; the group waits for it later.

#define GROUPS (BLOCK / 128 > 0 ? BLOCK / 128 : 1)

// The operands of a group's sums in the text of an instruction
#define PLACES32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, " \
    "%24, %25, %26, %27, %28, %29, %30, %31"
#define PLACES64 PLACES32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define PLACES128 PLACES64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, " \
    "%85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, %104, " \
    "%105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, " \
    "%123, %124, %125, %126, %127"

#define SUMS4(i) "+f"(sum[i]), "+f"(sum[i + 1]), "+f"(sum[i + 2]), "+f"(sum[i + 3])
#define SUMS16(i) SUMS4(i), SUMS4(i + 4), SUMS4(i + 8), SUMS4(i + 12)
#define SUMS64(i) SUMS16(i), SUMS16(i + 16), SUMS16(i + 32), SUMS16(i + 48)

// Begins sum += A B for a group; b is B's descriptor.
__device__ __forceinline__ void begin_product(float (&sum)[128], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32 {" PLACES128 "}, "
                 "{%128, %129, %130, %131}, %132, 1, 1, 1;"
                 : SUMS64(0), SUMS64(64)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

__device__ __forceinline__ void begin_product(float (&sum)[64], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" PLACES64 "}, "
                 "{%64, %65, %66, %67}, %68, 1, 1, 1;"
                 : SUMS64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

__device__ __forceinline__ void begin_product(float (&sum)[32], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 {" PLACES32 "}, "
                 "{%32, %33, %34, %35}, %36, 1, 1, 1;"
                 : SUMS16(0), SUMS16(16)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

// Begins sum = A B for a group.
__device__ __forceinline__ void begin_sum(float (&sum)[64], const unsigned (&a)[4], unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32 {" PLACES64 "}, "
                 "{%64, %65, %66, %67}, %68, 0, 1, 1;"
                 : SUMS64(0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
#endif
}

// Tells the compiler to keep the sums in the registers of the products: while these run, nothing else may write them.
__device__ __forceinline__ void hold(float (&sum)[128])
{
    asm volatile("" : SUMS64(0), SUMS64(64)::"memory");
}

__device__ __forceinline__ void hold(float (&sum)[64])
{
    asm volatile("" : SUMS64(0)::"memory");
}

__device__ __forceinline__ void hold(float (&sum)[32])
{
    asm volatile("" : SUMS16(0), SUMS16(16)::"memory");
}

// Waits until at most LEFT of the group's batches of products are not complete.
template <int LEFT>
__device__ __forceinline__ void wait_products()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
#endif
}

#ifdef BFLOAT16
#define FORMAT "bf16"
#else
#define FORMAT "f16"
#endif

// Begins sum += A B for a group, with elements of 2 bytes, from both descriptors. A and B are stored by rows; TURNED:
// by columns.
template <bool TURNED>
__device__ __forceinline__ void begin_product(float (&sum)[128], unsigned long long a, unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n256k16.f32." FORMAT "." FORMAT " {" PLACES128 "}, "
                 "%128, %129, 1, 1, 1, %130, %131;"
                 : SUMS64(0), SUMS64(64)
                 : "l"(a), "l"(b), "n"(TURNED), "n"(!TURNED));
#endif
}

template <bool TURNED>
__device__ __forceinline__ void begin_product(float (&sum)[64], unsigned long long a, unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." FORMAT "." FORMAT " {" PLACES64 "}, "
                 "%64, %65, 1, 1, 1, %66, %67;"
                 : SUMS64(0)
                 : "l"(a), "l"(b), "n"(TURNED), "n"(!TURNED));
#endif
}

template <bool TURNED>
__device__ __forceinline__ void begin_product(float (&sum)[32], unsigned long long a, unsigned long long b)
{
#if __CUDA_ARCH__ >= 900
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." FORMAT "." FORMAT " {" PLACES32 "}, "
                 "%32, %33, 1, 1, 1, %34, %35;"
                 : SUMS16(0), SUMS16(16)
                 : "l"(a), "l"(b), "n"(TURNED), "n"(!TURNED));
#endif
}

// Rounds two sums to elements of 2 bytes, the first in the lower half.
__device__ __forceinline__ unsigned rounded(float first, float second)
{
    unsigned both = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn." FORMAT "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
#endif
    return both;
}

// Returns x minus its TF32 part: the number that the bits of x mean that TF32 leaves out.
__device__ __forceinline__ float rest_of(float x)
{
    return x - __uint_as_float(__float_as_uint(x) & 0xFFFFE000);
}
