// Scalar and SIMD video instructions: out[f * n + i] is the f-th form of a[i], b[i], c[i].
#define FORM(text) { unsigned d = c[i]; asm volatile(text : "+r"(d) : "r"(a[i]), "r"(b[i]), "r"(c[i])); out[f++ * n + i] = d; }

__global__ void forms(const unsigned *a, const unsigned *b, const unsigned *c, unsigned *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, f = 0;
    if (i >= n) return;
    FORM("vadd.s32.s32.s32.sat %0, %1, %2;")
    FORM("vadd.u32.s32.u32.sat %0, %1.b3, %2.h1;")
    FORM("vsub.s32.u32.s32 %0, %1.h0, %2.b1;")
    FORM("vabsdiff.u32.u32.u32.add %0, %1.b0, %2.b2, %3;")
    FORM("vabsdiff.s32.s32.s32.sat.min %0, %1, %2, %3;")
    FORM("vmin.s32.s32.s32.max %0, %1.h1, %2.h0, %3;")
    FORM("vmax.u32.u32.u32 %0, %1.b2, %2.h1;")
    FORM("vadd.s32.s32.s32 %0.b1, %1.b0, %2.h1, %3;")
    FORM("vsub.u32.u32.u32 %0.b0, %1, %2, %3;")
    FORM("vset.s32.u32.lt %0, %1, %2;")
    FORM("vset.u32.u32.ge.add %0, %1.h0, %2.b0, %3;")
    FORM("vshl.u32.u32.u32.clamp %0, %1, %2.b0;")
    FORM("vshl.u32.u32.u32.wrap %0, %1, %2;")
    FORM("vshr.s32.s32.u32.clamp %0, %1, %2.b1;")
    FORM("vshr.u32.u32.u32.wrap.add %0, %1, %2, %3;")
    FORM("vmad.s32.s32.u32.sat.shr7 %0, %1.h1, %2.h0, %3;")
    FORM("vmad.u32.u32.u32.po %0, %1.h0, %2.h1, %3;")
    FORM("vmad.s32.s32.s32 %0, %1.b0, %2.h1, %3;")
    FORM("vmad.s32.u32.u32.sat %0, %1.h0, %2.h1, -%3;")
    FORM("vadd2.s32.s32.s32.sat %0, %1, %2, %3;")
    FORM("vabsdiff4.u32.u32.u32.add %0, %1, %2, %3;")
    FORM("vmax4.s32.s32.s32 %0, %1, %2, %3;")
    FORM("vset4.u32.u32.gt %0, %1, %2, %3;")
}
