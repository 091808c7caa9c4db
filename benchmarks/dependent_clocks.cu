// Clocks from an instruction to the next one that uses its result, for instructions whose result comes after a time that
// the compiler does not know. One warp runs a chain of STEPS of them; a chain has twice as many steps in a second run,
// so that what is around the chain drops out.
//
//     nvcc -arch=native -o dependent_clocks benchmarks/dependent_clocks.cu && ./dependent_clocks
//
// explain/warp_latency.py uses the results (benchmarks/results/dependent_clocks_h100.md).
#include <cstdio>
#include <cuda_fp16.h>

using U64 = unsigned long long;
constexpr int STEPS = 128;
__constant__ unsigned zeros_const[64];

#define CHAIN(NAME, TYPE, START, STEP)                                                                                 \
    struct NAME {                                                                                                      \
        static constexpr const char *name = #NAME;                                                                     \
        template <int COUNT> static __device__ long long run(unsigned *zeros, unsigned *out) {                         \
            __shared__ unsigned cells[64];                                                                             \
            unsigned stack[8];                                                                                         \
            for (int k = threadIdx.x; k < 64; k += blockDim.x)                                                         \
                cells[k] = 0;                                                                                          \
            for (int k = 0; k < 8; k++)                                                                                \
                stack[k] = zeros[k];                                                                                   \
            __syncthreads();                                                                                           \
            TYPE x = TYPE(START);                                                                                      \
            long long least = 1 << 30;                                                                                 \
            for (int again = 0; again < 4; again++) {                                                                  \
                __syncthreads();                                                                                       \
                const long long before = clock64();                                                                    \
                _Pragma("unroll") for (int k = 0; k < COUNT; k++) { STEP; }                                            \
                asm volatile("" ::"r"(*(int *)&x));                                                                    \
                out[threadIdx.x + (int)(x != x)] = unsigned(x);                                                        \
                const long long clocks = clock64() - before;                                                           \
                least = clocks < least ? clocks : least;                                                               \
            }                                                                                                          \
            (void)cells, (void)stack;                                                                                  \
            return least;                                                                                              \
        }                                                                                                              \
    };
#define ASM(TEXT, C) asm volatile(TEXT : "+" C(x))

CHAIN(iadd, unsigned, threadIdx.x, ASM("add.u32 %0, %0, %0;", "r"))
CHAIN(fma_f32, float, threadIdx.x + 1, ASM("fma.rn.f32 %0, %0, %0, %0;", "f"))
CHAIN(imad_wide, U64, threadIdx.x,
      asm volatile("{.reg .u32 a, b; mov.b64 {a, b}, %0; mad.wide.u32 %0, a, a, %0;}" : "+l"(x)))
CHAIN(add_f64, double, threadIdx.x + 1, ASM("add.f64 %0, %0, %0;", "d"))
CHAIN(fma_f64, double, threadIdx.x + 1, ASM("fma.rn.f64 %0, %0, %0, %0;", "d"))
CHAIN(mufu_ex2, float, 0.5f, ASM("ex2.approx.ftz.f32 %0, %0;", "f"))
CHAIN(mufu_lg2, float, 0.5f, ASM("lg2.approx.ftz.f32 %0, %0;", "f"))
CHAIN(mufu_rcp, float, 0.5f, ASM("rcp.approx.ftz.f32 %0, %0;", "f"))
CHAIN(mufu_rsq, float, 0.5f, ASM("rsqrt.approx.ftz.f32 %0, %0;", "f"))
CHAIN(mufu_sin, float, 0.5f, ASM("sin.approx.ftz.f32 %0, %0;", "f"))
CHAIN(f2i_i2f, float, threadIdx.x, asm volatile("{.reg .s32 a; cvt.rni.s32.f32 a, %0; cvt.rn.f32.s32 %0, a;}" : "+f"(x)))
CHAIN(f2f_64_32, float, threadIdx.x, asm volatile("{.reg .f64 a; cvt.f64.f32 a, %0; cvt.rn.f32.f64 %0, a;}" : "+f"(x)))
CHAIN(popc, unsigned, threadIdx.x, ASM("popc.b32 %0, %0;", "r"))
CHAIN(flo, unsigned, threadIdx.x, ASM("bfind.u32 %0, %0;", "r"))
CHAIN(brev, unsigned, threadIdx.x, ASM("brev.b32 %0, %0;", "r"))
CHAIN(shfl, unsigned, threadIdx.x, x = __shfl_xor_sync(~0u, x, 1))
CHAIN(shfl_idx, unsigned, threadIdx.x, x = __shfl_sync(~0u, x, x & 31))
CHAIN(vote, unsigned, threadIdx.x, x = __ballot_sync(~0u, x & 1))
CHAIN(match_any, unsigned, threadIdx.x, x = __match_any_sync(~0u, x))
CHAIN(redux, unsigned, threadIdx.x, x = __reduce_min_sync(~0u, x + threadIdx.x))
CHAIN(lds, unsigned, 0, x = *(volatile unsigned *)&cells[x])
CHAIN(ldl, unsigned, 0, x = *(volatile unsigned *)&stack[x])
CHAIN(ldc, unsigned, 0, x = zeros_const[x] + (x & 4))
CHAIN(ldg_l1, unsigned, 0, asm volatile("{.reg .u64 a; mad.wide.u32 a, %0, 4, %1; ld.global.ca.u32 %0, [a];}" : "+r"(x) : "l"(zeros)))
CHAIN(ldg_l2, unsigned, 0, asm volatile("{.reg .u64 a; mad.wide.u32 a, %0, 4, %1; ld.global.cg.u32 %0, [a];}" : "+r"(x) : "l"(zeros)))
CHAIN(atoms_add, unsigned, 0, x = atomicAdd(&cells[x + threadIdx.x], 0u))
CHAIN(atoms_cas, unsigned, 0, x = atomicCAS(&cells[x + threadIdx.x], 0u, 0u))
CHAIN(atomg_add, unsigned, 0, x = atomicAdd(&zeros[x + threadIdx.x], 0u))
CHAIN(atomg_cas, unsigned, 0, x = atomicCAS(&zeros[x + threadIdx.x], 0u, 0u))
CHAIN(barrier, unsigned, 0, __syncthreads())
CHAIN(syncwarp, unsigned, 0, __syncwarp())
CHAIN(fence_block, unsigned, 0, __threadfence_block())
CHAIN(fence_gpu, unsigned, 0, __threadfence())
CHAIN(hadd2, unsigned, threadIdx.x, ASM("fma.rn.f16x2 %0, %0, %0, %0;", "r"))
CHAIN(diverging, unsigned, threadIdx.x,
      if (x & 1) asm volatile("xor.b32 %0, %0, 3;" : "+r"(x)); else asm volatile("add.u32 %0, %0, 5;" : "+r"(x)))
CHAIN(mma_f16, unsigned, threadIdx.x,
      asm volatile("{mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %0}, {%0, %0, %0, %0}, {%0, %0}, {%0, %0};}" : "+r"(x)))

template <class C, int COUNT> __global__ void measure(unsigned *zeros, unsigned *out, long long *clocks) {
    const long long least = C::template run<COUNT>(zeros, out);
    if (threadIdx.x == 0)
        *clocks = least;
}

template <class C> void print(unsigned *zeros, unsigned *out, long long *clocks, int threads) {
    long long least[2];
    for (int twice = 0; twice < 2; twice++) {
        if (twice)
            measure<C, 2 * STEPS><<<1, threads>>>(zeros, out, clocks);
        else
            measure<C, STEPS><<<1, threads>>>(zeros, out, clocks);
        if (cudaError_t error = cudaDeviceSynchronize()) {
            printf("%-12s %s\n", C::name, cudaGetErrorString(error));
            return;
        }
        least[twice] = *clocks;
    }
    printf("%-12s %4d threads %8.2f clocks a step\n", C::name, threads, double(least[1] - least[0]) / STEPS);
}

template <class... C> void all(unsigned *zeros, unsigned *out, long long *clocks) {
    (print<C>(zeros, out, clocks, 32), ...);
}

int main() {
    unsigned *zeros, *out;
    long long *clocks;
    cudaMallocManaged(&clocks, sizeof *clocks);
    cudaMalloc(&zeros, 4096);
    cudaMalloc(&out, 8192);
    cudaMemset(zeros, 0, 4096);
    all<iadd, fma_f32, imad_wide, add_f64, fma_f64, mufu_ex2, mufu_lg2, mufu_rcp, mufu_rsq, mufu_sin, f2i_i2f, f2f_64_32, popc,
        flo, brev, shfl, shfl_idx, vote, match_any, redux, lds, ldl, ldc, ldg_l1, ldg_l2, atoms_add, atoms_cas, atomg_add, atomg_cas,
        barrier, syncwarp, fence_block, fence_gpu, hadd2, diverging, mma_f16>(zeros, out, clocks);
    print<barrier>(zeros, out, clocks, 64);
    print<barrier>(zeros, out, clocks, 256);
    print<barrier>(zeros, out, clocks, 1024);
    return 0;
}
