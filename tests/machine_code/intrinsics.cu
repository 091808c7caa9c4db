// One kernel for each intrinsic or expression: its machine code has instructions that other kernels rarely have.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
__device__ int bfe(int x, int p, int n) {
    int d;
    asm("bfe.s32 %0,%1,%2,%3;" : "=r"(d) : "r"(x), "r"(p), "r"(n));
    return d;
}
__device__ int bfi(int x, int z, int p, int n) {
    int d;
    asm("bfi.b32 %0,%1,%2,%3,%4;" : "=r"(d) : "r"(x), "r"(z), "r"(p), "r"(n));
    return d;
}
__device__ int bfind(int x) {
    int d;
    asm("bfind.s32 %0,%1;" : "=r"(d) : "r"(x));
    return d;
}
__device__ int bfindshift(int x) {
    int d;
    asm("bfind.shiftamt.u32 %0,%1;" : "=r"(d) : "r"(x));
    return d;
}
__device__ int szext(int x, int n) {
    int d;
    asm("szext.wrap.s32 %0,%1,%2;" : "=r"(d) : "r"(x), "r"(n));
    return d;
}
__device__ int bmsk(int x, int n) {
    int d;
    asm("bmsk.clamp.b32 %0,%1,%2;" : "=r"(d) : "r"(x), "r"(n));
    return d;
}
__device__ int lop3(int x, int z) {
    int d;
    asm("lop3.b32 %0,%1,%2,%3,0x4d;" : "=r"(d) : "r"(x), "r"(z), "r"(x + z));
    return d;
}
__device__ int addsat(int x, int z) {
    int d;
    asm("add.sat.s32 %0,%1,%2;" : "=r"(d) : "r"(x << 8), "r"(z << 16));
    return d;
}
__device__ int prmt(int x, int z) {
    int d;
    asm("prmt.b32.f4e %0,%1,%2,%3;" : "=r"(d) : "r"(x), "r"(z), "r"(x & 3));
    return d;
}
__device__ int sat16(int x, int z) {
    int d;
    asm("cvt.pack.sat.s16.s32 %0,%1,%2;" : "=r"(d) : "r"(x << 9), "r"(z));
    return d;
}
__device__ int vib(int x, int z) {
    bool p;
    int r = __vibmax_s32(x, z, &p);
    return r * 2 + p;
}
__device__ int matchall(int x) {
    int p;
    unsigned m = __match_all_sync(~0u, x >> 20, &p);
    return m + p;
}
__device__ int lanes() {
    unsigned a, b;
    asm("mov.u32 %0,%%lanemask_lt;mov.u32 %1,%%lanemask_ge;" : "=r"(a), "=r"(b));
    return a * 3 + b;
}
__device__ int nsm() {
    unsigned a, b;
    asm("mov.u32 %0,%%nsmid;mov.u32 %1,%%smid;" : "=r"(a), "=r"(b));
    return a * 3 + b;
}
__device__ int isspace(int *p) { return __isShared(p) + 2 * __isGlobal(p) + 4 * __isLocal(p); }
__device__ float fre(float a) {
    int e;
    float m = frexpf(a, &e);
    return m + e;
}
__device__ float sc(float a) {
    float s, c;
    sincosf(a, &s, &c);
    return s + 2 * c;
}
__device__ float h2c(float a, float b) { return __hbgt2(__floats2half2_rn(a, b), __floats2half2_rn(b, b)) ? a : b; }
__device__ __half h2t(float a) {
#if __CUDA_ARCH__ >= 750
    __half h = __float2half(a), r;
    asm("tanh.approx.f16 %0,%1;" : "=h"(*(short *)&r) : "h"(*(short *)&h));
    return r;
#else
    return __float2half(tanhf(a));
#endif
}
__device__ float h2f(float a, float b) {
    __half2 h = __hfma2(__floats2half2_rn(a, b), __floats2half2_rn(b, .5f), __floats2half2_rn(1.f, a));
    return __low2float(h) + __high2float(h);
}
__device__ float bf2(float a, float b) {
    __nv_bfloat162 h = __hmul2(__floats2bfloat162_rn(a, b), __floats2bfloat162_rn(b, .5f));
    return __low2float(h) + __high2float(h);
}
__device__ float e4(float a) { return float(__nv_fp8_e4m3(a)); }
__device__ float e5(float a) { return float(__nv_fp8_e5m2(a)); }
__device__ float e44(float a, float b) {
    float4 f = make_float4(a, b, a * b, a - b);
    __nv_fp8x4_e4m3 q(f);
    float4 g = float4(q);
    return g.x + 2 * g.y + 3 * g.z + 5 * g.w;
}
__device__ float tf(float a) {
#if __CUDA_ARCH__ >= 800
    unsigned r;
    asm("cvt.rna.tf32.f32 %0,%1;" : "=r"(r) : "f"(a));
    return __uint_as_float(r);
#else
    return a;
#endif
}
#define INTEGERS(NAME, E)                                                                                              \
    extern "C" __global__ void i_##NAME(const int *p, const float *f, int *y, int n) {                                 \
        __shared__ int tile[1];                                                                                        \
        tile[0] = 3;                                                                                                   \
        int i = blockIdx.x * blockDim.x + threadIdx.x, x = p[i], z = p[i + n];                                         \
        y[i] = E;                                                                                                      \
    }
#define FLOATS(NAME, E)                                                                                                \
    extern "C" __global__ void f_##NAME(const int *p, const float *f, float *y, int n) {                               \
        int i = blockIdx.x * blockDim.x + threadIdx.x;                                                                 \
        float a = f[i], b = f[i + n];                                                                                  \
        y[i] = E;                                                                                                      \
    }
INTEGERS(abs_, (abs(x)))
INTEGERS(sad, (__sad(x, z, 7)))
INTEGERS(usad, (__usad(x, z, 3u)))
INTEGERS(vabsdiff4, (__vabsdiffu4(x, z)))
INTEGERS(vsad4, (__vsadu4(x, z)))
INTEGERS(vmaxu2, (__vmaxu2(x, z)))
INTEGERS(vminu4, (__vminu4(x, z)))
INTEGERS(vmaxs2, (__vmaxs2(x, z)))
INTEGERS(vadd4, (__vadd4(x, z)))
INTEGERS(vaddss2, (__vaddss2(x, z)))
INTEGERS(vcmpeq4, (__vcmpeq4(x, z)))
INTEGERS(vavg, (__vavgu4(x, z)))
INTEGERS(hadd, (__hadd(x, z)))
INTEGERS(rhadd, (__rhadd(x, z)))
INTEGERS(uhadd, (__uhadd((unsigned)x, (unsigned)z)))
INTEGERS(mulhi, (__mulhi(x, z)))
INTEGERS(umulhi, (__umulhi(x, z)))
INTEGERS(mul24, (__mul24(x, z)))
INTEGERS(umul24, (__umul24(x, z)))
INTEGERS(mul64hi, ((int)__mul64hi((long long)x * z, (long long)z * 12345678)))
INTEGERS(clz, (__clz(x)))
INTEGERS(clzll, (__clzll((long long)x * z)))
INTEGERS(ffs, (__ffs(x)))
INTEGERS(ffsll, (__ffsll((long long)x * z)))
INTEGERS(popcll, (__popcll((long long)x * z)))
INTEGERS(brev, (__brev(x)))
INTEGERS(brevll, ((int)__brevll((long long)x * z)))
INTEGERS(byteperm, (__byte_perm(x, z, 0x5410)))
INTEGERS(byteperm2, (__byte_perm(x, z, x & 0x7777)))
INTEGERS(funnell, (__funnelshift_l(x, z, x & 31)))
INTEGERS(funnelr, (__funnelshift_rc(x, z, x & 63)))
INTEGERS(dp4a, (__dp4a(x, z, 5)))
INTEGERS(dp2a, (__dp2a_lo(x, z, 5)))
INTEGERS(dp2ahi, (__dp2a_hi((unsigned)x, (unsigned)z, 5u)))
INTEGERS(bfe, (bfe(x, z & 31, 5)))
INTEGERS(bfi, (bfi(x, z, z & 31, 7)))
INTEGERS(bfind, (bfind(x)))
INTEGERS(bfinds, (bfindshift(x)))
INTEGERS(fns, ((int)__fns(x, 0, 3)))
INTEGERS(szext, (szext(x, z & 31)))
INTEGERS(bmsk, (bmsk(x & 31, z & 31)))
INTEGERS(lop3, (lop3(x, z)))
INTEGERS(sat, (sat16(x, z)))
INTEGERS(addsat, (addsat(x, z)))
INTEGERS(prmt, (prmt(x, z)))
INTEGERS(shl64, ((int)(((long long)x * z) << (x & 63) >> 17)))
INTEGERS(div, (x / (z | 1)))
INTEGERS(mod, (x % (z | 1)))
INTEGERS(udiv, ((unsigned)x / (unsigned)(z | 1)))
INTEGERS(div64, ((int)(((long long)x * z) / ((x ^ z) | 1))))
INTEGERS(cmp64, ((int)((long long)x * z < (long long)(x ^ z) * 77)))
INTEGERS(min64, ((int)min((long long)x * z, (long long)(x ^ z) * 77)))
INTEGERS(umax64, ((int)max((unsigned long long)x * z, (unsigned long long)(x ^ z) * 77)))
INTEGERS(mad64, ((int)((((long long)x * z) * ((long long)z * x + 3)) >> 32)))
INTEGERS(u8, ((unsigned char)x + (signed char)z))
INTEGERS(i2f, (__float_as_int((float)x)))
INTEGERS(u2f, (__float_as_int((float)(unsigned)x)))
INTEGERS(ll2f, (__float_as_int((float)((long long)x * z))))
INTEGERS(ull2d, ((int)__double_as_longlong((double)((unsigned long long)x * z))))
INTEGERS(s8f, (__float_as_int((float)(signed char)(x >> 8))))
INTEGERS(max3, (max(max(x, z), x ^ z)))
INTEGERS(relu, (max(x + z, 0)))
INTEGERS(addmax, (max(x + z, x)))
INTEGERS(addminrelu, (__viaddmin_s32_relu(x, z, 77)))
INTEGERS(vimax3, (__vimax3_s32(x, z, 5)))
INTEGERS(vimin3u16, (__vimin3_u16x2(x, z, x ^ z)))
INTEGERS(vibmax, (vib(x, z)))
INTEGERS(viaddmaxs16, (__viaddmax_s16x2(x, z, x ^ z)))
INTEGERS(vimaxrelu, (__vimax_s16x2_relu(x, z)))
INTEGERS(vimax3relu, (__vimax3_s32_relu(x, z, -x)))
INTEGERS(viaddmaxu, (__viaddmax_u32(x, z, 77u)))
INTEGERS(reduxadd, (__reduce_add_sync(~0u, x)))
INTEGERS(reduxmax, (__reduce_max_sync(~0u, x)))
INTEGERS(matchall, (matchall(x)))
INTEGERS(matchany, (__match_any_sync(~0u, x & 7)))
INTEGERS(ballot, (__ballot_sync(~0u, x & 1)))
INTEGERS(act, (__activemask()))
INTEGERS(shflup, (__shfl_up_sync(~0u, x, 3)))
INTEGERS(shfl64, ((int)(__shfl_xor_sync(~0u, (long long)x *z, 5) >> 7)))
INTEGERS(lanemask, (lanes()))
INTEGERS(nsmid, (nsm() & 0))
INTEGERS(clock, ((int)(clock64() & 0)))
INTEGERS(isspace, (isspace(tile)))
INTEGERS(addr, ((int)(__cvta_generic_to_shared(tile)) & 0))
FLOATS(fdiv, (a / b))
FLOATS(rcp, (1.0f / a))
FLOATS(sqrt, (sqrtf(fabsf(a))))
FLOATS(rsqrt, (rsqrtf(fabsf(a))))
FLOATS(fdivide, (__fdividef(a, b)))
FLOATS(sinf, (sinf(a)))
FLOATS(fsin, (__sinf(a)))
FLOATS(exp, (expf(a * 0.1f)))
FLOATS(fexp, (__expf(a * .1f)))
FLOATS(log, (logf(fabsf(a) + 1)))
FLOATS(pow, (powf(fabsf(a) + 1, .3f)))
FLOATS(tanh, (tanhf(a)))
FLOATS(atan2, (atan2f(a, b)))
FLOATS(fmod, (fmodf(a, b)))
FLOATS(remq, (remainderf(a, b)))
FLOATS(floor, (floorf(a)))
FLOATS(rint, (rintf(a)))
FLOATS(round, (roundf(a)))
FLOATS(trunc, (truncf(a)))
FLOATS(copysign, (copysignf(a, b)))
FLOATS(fmaxf, (fmaxf(a, b)))
FLOATS(fmin3, (fminf(fminf(a, b), a *b)))
FLOATS(fdim, (fdimf(a, b)))
FLOATS(hyp, (hypotf(a, b)))
FLOATS(cbrt, (cbrtf(a)))
FLOATS(erf, (erff(a * .1f)))
FLOATS(gam, (tgammaf(fabsf(a) * .1f + 1)))
FLOATS(sat, (__saturatef(a)))
FLOATS(addrz, (__fadd_rz(a, b)))
FLOATS(addru, (__fadd_ru(a, b)))
FLOATS(mulrd, (__fmul_rd(a, b)))
FLOATS(fmaru, (__fmaf_ru(a, b, 1.f)))
FLOATS(divru, (__fdiv_ru(a, b)))
FLOATS(sqrtrd, (__fsqrt_rd(fabsf(a))))
FLOATS(f2i, ((float)(int)a))
FLOATS(f2u, ((float)(unsigned)fabsf(a)))
FLOATS(f2ll, ((float)(long long)(a * 1e6f)))
FLOATS(f2s8, ((float)(signed char)a))
FLOATS(f2irn, ((float)__float2int_rn(a)))
FLOATS(f2iru, ((float)__float2int_ru(a)))
FLOATS(frexp, (fre(a)))
FLOATS(ldexp, (ldexpf(a, 3)))
FLOATS(logb, (logbf(a)))
FLOATS(isnan, (isnan(a) ? 1.f : isinf(b) ? 2.f : 3.f))
FLOATS(sign, (signbit(a) ? 1.f : 2.f))
FLOATS(sel, (a > b ? a : b * 2))
FLOATS(cmpset, ((float)(a > b) + (a <= b)))
FLOATS(dbl, ((float)((double)a * b + 1.0 / (double)b)))
FLOATS(dsqrt, ((float)sqrt((double)fabsf(a))))
FLOATS(dsin, ((float)sin((double)a)))
FLOATS(dexp, ((float)exp((double)a * .1)))
FLOATS(dmin, ((float)fmin((double)a, (double)b)))
FLOATS(dfloor, ((float)floor((double)a)))
FLOATS(drint, ((float)rint((double)a)))
FLOATS(d2i, ((float)(int)((double)a * 3)))
FLOATS(d2ll, ((float)(long long)((double)a * 3e9)))
FLOATS(i2d, ((float)((double)(int)a * (unsigned)fabsf(b))))
FLOATS(dcmp, ((double)a < (double)b ? a : b))
FLOATS(dset, ((float)((double)a < (double)b)))
FLOATS(hadd, (__half2float(__float2half(a) + __float2half(b))))
FLOATS(hmax, (__half2float(__hmax(__float2half(a), __float2half(b)))))
FLOATS(hminnan, (__half2float(__hmin_nan(__float2half(a), __float2half(b)))))
FLOATS(hcmp, (__hgt(__float2half(a), __float2half(b)) ? a : b))
FLOATS(h2cmp, (h2c(a, b)))
FLOATS(hset, (__low2float(__hlt2(__floats2half2_rn(a, b), __floats2half2_rn(b, a)))))
FLOATS(hfmarelu, (__half2float(__hfma_relu(__float2half(a), __float2half(b), __float2half(-1.f)))))
FLOATS(hsat, (__half2float(__hadd_sat(__float2half(a), __float2half(b)))))
FLOATS(hexp, (__half2float(hexp(__float2half(a * .1f)))))
FLOATS(hexp2, (__half2float(hexp2(__float2half(a * .1f)))))
FLOATS(htanh, (__half2float(h2t(a))))
FLOATS(hrcp, (__half2float(hrcp(__float2half(a)))))
FLOATS(hsqrt, (__half2float(hsqrt(__float2half(fabsf(a))))))
FLOATS(hsin, (__half2float(hsin(__float2half(a)))))
FLOATS(hfloor, (__half2float(hfloor(__float2half(a)))))
FLOATS(h2i, ((float)__half2int_rn(__float2half(a))))
FLOATS(i2h, (__half2float(__int2half_rn((int)a))))
FLOATS(s2h, (__half2float(__short2half_rn((short)a))))
FLOATS(habs, (__half2float(__habs(__float2half(a)))))
FLOATS(hneg, (__half2float(-__float2half(a))))
FLOATS(h2f, (h2f(a, b)))
FLOATS(bf, (__bfloat162float(__float2bfloat16(a) * __float2bfloat16(b))))
FLOATS(bfmax, (__bfloat162float(__hmax(__float2bfloat16(a), __float2bfloat16(b)))))
FLOATS(bfcmp, (__hgt(__float2bfloat16(a), __float2bfloat16(b)) ? a : b))
FLOATS(bf2, (bf2(a, b)))
FLOATS(bfrz, (__bfloat162float(__float2bfloat16_rz(a))))
FLOATS(hrz, (__half2float(__float2half_rz(a))))
FLOATS(d2h, (__half2float(__double2half((double)a))))
FLOATS(h2d, ((float)((double)__half2float(__float2half(a)) * 3)))
FLOATS(hdiv, (__half2float(__float2half(a) / __float2half(b))))
FLOATS(e4, (e4(a)))
FLOATS(e5, (e5(a)))
FLOATS(e4x4, (e44(a, b)))
FLOATS(tf32, (tf(a)))
FLOATS(ulp, (nextafterf(a, b)))
FLOATS(fswz, (__shfl_xor_sync(~0u, a, 1) - a))
FLOATS(j0, (j0f(a)))
FLOATS(norm, (normcdff(a)))
FLOATS(exp10, (exp10f(a * .1f)))
FLOATS(lg, (lgammaf(fabsf(a) + 1)))
FLOATS(sincos, (sc(a)))
