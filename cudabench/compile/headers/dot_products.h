// Dot products of bytes and of 16-bit integers. Without optimisation, NVRTC 13 refuses CUDA's for GPUs before sm_100.
#define CUDABENCH_DOT(name, instruction, number, form, left, right) \
    static __device__ __forceinline__ number cudabench_##name(number a, number b, number c) { \
        asm(instruction "." form "." form " %0, %1, %2, %0;" : "+r"(c) : "r"(a), "r"(b)); \
        return c; \
    } \
    static __device__ __forceinline__ number cudabench_##name(left a, right b, number c) { \
        return cudabench_##name(reinterpret_cast<number &>(a), reinterpret_cast<number &>(b), c); \
    }
CUDABENCH_DOT(dp4a, "dp4a", int, "s32", char4, char4)
CUDABENCH_DOT(dp4a, "dp4a", unsigned, "u32", uchar4, uchar4)
CUDABENCH_DOT(dp2a_lo, "dp2a.lo", int, "s32", short2, char4)
CUDABENCH_DOT(dp2a_lo, "dp2a.lo", unsigned, "u32", ushort2, uchar4)
CUDABENCH_DOT(dp2a_hi, "dp2a.hi", int, "s32", short2, char4)
CUDABENCH_DOT(dp2a_hi, "dp2a.hi", unsigned, "u32", ushort2, uchar4)
#undef CUDABENCH_DOT
#define __dp4a cudabench_dp4a
#define __dp2a_lo cudabench_dp2a_lo
#define __dp2a_hi cudabench_dp2a_hi
