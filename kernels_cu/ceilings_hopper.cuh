// Ceilings of the tensor cores by wgmma (compute capability 9.0 only), a part of ceilings.cu: a group of four warps
// multiplies 64 x k by k x 256 elements, which the tensor cores read from shared memory themselves. An instruction
// takes 32 bytes of each row of A and of each column of B, so a tile of 128 bytes is four instructions, whatever the
// format. Rows of 128 bytes have pieces that change places, and each eight rows take 1024 bytes, as tiles of a product
// would; the elements are equal, as for mma.sync.

#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GROUP_STEPS 16             // instructions of a group in a pass
#define GROUP_A_WORDS (64 * 8)     // words of 16 bytes
#define GROUP_WORDS (GROUP_A_WORDS + 256 * 8)
#define GROUP_ROWS (1ull << 16 | 64ull << 32 | 1ull << 62)
#define C4(R, i) R(c[i]), R(c[i + 1]), R(c[i + 2]), R(c[i + 3])
#define C16(R, i) C4(R, i), C4(R, i + 4), C4(R, i + 8), C4(R, i + 12)
#define C64(R, i) C16(R, i), C16(R, i + 16), C16(R, i + 32), C16(R, i + 48)
#define GROUP_LIST                                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "                            \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "                            \
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "                            \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "                            \
    "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "                            \
    "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, "                        \
    "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "                             \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA(NAME, INSTRUCTION, C, REGISTER, SCALES)                                                                  \
    extern "C" __global__ void NAME(const uint4 *words, double *out, long long *clocks, unsigned passes)               \
    {                                                                                                                  \
        __shared__ __align__(1024) uint4 tiles[GROUP_WORDS];                                                           \
        C c[128];                                                                                                      \
        double sum = 0;                                                                                                \
        _Pragma("unroll 1") for (int i = threadIdx.x; i < GROUP_WORDS; i += BDIMX)                                     \
            tiles[i] = words[i];                                                                                       \
        for (int i = 0; i < 128; i++)                                                                                  \
            c[i] = (C)(i % 4);                                                                                         \
        asm volatile("fence.proxy.async;" ::: "memory");                                                               \
        __syncthreads();                                                                                               \
        Bytes a = __cvta_generic_to_shared(tiles) >> 4 | GROUP_ROWS, b = a + GROUP_A_WORDS;                            \
        long long began = clock64();                                                                                   \
        _Pragma("unroll 1") for (unsigned pass = 0; pass < passes; pass++)                                             \
        {                                                                                                              \
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                    \
            _Pragma("unroll") for (int i = 0; i < GROUP_STEPS; i++)                                                    \
                asm volatile(INSTRUCTION " {" GROUP_LIST "}, %128, %129, " SCALES ";"                                  \
                             : C64(REGISTER, 0), C64(REGISTER, 64)                                                     \
                             : "l"(a + i % 4 * 2), "l"(b + i % 4 * 2));                                                \
            asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");          \
        }                                                                                                              \
        clocks[blockIdx.x * BDIMX + threadIdx.x] = clock64() - began;                                                  \
        for (int i = 0; i < 128; i++)                                                                                  \
            sum += c[i];                                                                                               \
        out[blockIdx.x * BDIMX + threadIdx.x] = sum;                                                                   \
    }

WGMMA(wgmma_tf32, "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", float, "+f", "1, 1, 1")
WGMMA(wgmma_bf16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", float, "+f", "1, 1, 1, 0, 0")
WGMMA(wgmma_fp16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", float, "+f", "1, 1, 1, 0, 0")
WGMMA(wgmma_int8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8", int, "+r", "1")
#endif
