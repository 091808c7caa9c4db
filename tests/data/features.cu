// One kernel a feature, for the comparison of the simulator with a GPU: same inputs, same bits.
#include <cooperative_groups.h>
#include <cuda_fp16.h>
#include <mma.h>

typedef unsigned int u32;
typedef unsigned short u16;
typedef unsigned long long u64;

__device__ u32 at(const void *p) { return (u32)__cvta_generic_to_shared(p); }

extern "C" __global__ void fp8(const float *x, const u32 *h, u16 *o, u32 *w) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(o[i]) : "f"(x[i]), "f"(x[n - 1 - i]));
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(o[n + i]) : "f"(x[i]), "f"(x[n - 1 - i]));
  asm("cvt.rn.satfinite.relu.e4m3x2.f32 %0, %1, %2;" : "=h"(o[2 * n + i]) : "f"(x[i]), "f"(x[n - 1 - i]));
  asm("cvt.rn.satfinite.e4m3x2.f16x2 %0, %1;" : "=h"(o[3 * n + i]) : "r"(h[i]));
  asm("cvt.rn.satfinite.e5m2x2.f16x2 %0, %1;" : "=h"(o[4 * n + i]) : "r"(h[i]));
  asm("cvt.rn.satfinite.relu.e5m2x2.f16x2 %0, %1;" : "=h"(o[5 * n + i]) : "r"(h[i]));
  u16 pair = i;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(w[i]) : "h"(pair));
  asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(w[n + i]) : "h"(pair));
  asm("cvt.rn.relu.f16x2.e5m2x2 %0, %1;" : "=r"(w[2 * n + i]) : "h"(pair));
}

extern "C" __global__ void line(cudaTextureObject_t t, const float *x, float *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex1D<float>(t, x[i]);
}

extern "C" __global__ void plane(cudaTextureObject_t t, const float2 *x, float *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex2D<float>(t, x[i].x, x[i].y);
}

extern "C" __global__ void colours(cudaTextureObject_t t, const float2 *x, float4 *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex2D<float4>(t, x[i].x, x[i].y);
}

extern "C" __global__ void words(cudaTextureObject_t t, int *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex1Dfetch<int>(t, i - 8);
}

extern "C" __global__ void gathered(cudaTextureObject_t t, const float2 *x, float4 *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex2Dgather<float4>(t, x[i].x, x[i].y, 0);
}

extern "C" __global__ void volume(cudaTextureObject_t t, const float4 *x, float *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex3D<float>(t, x[i].x, x[i].y, x[i].z);
}

extern "C" __global__ void layers(cudaTextureObject_t t, const float2 *x, float *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  o[i] = tex2DLayered<float>(t, x[i].x, x[i].y, i % 5);
}

extern "C" __global__ void matrices(const u16 *in, u32 *o) {
  __shared__ __align__(16) u16 tile[32][24], back[32][8];
  int lane = threadIdx.x;
  for (int i = 0; i < 8; i++) tile[lane][i] = in[lane * 8 + i], back[lane][i] = 0;
  __syncthreads();
  u32 r[4], s[4], t[2], v;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at(&tile[lane][0])));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(s[0]), "=r"(s[1]), "=r"(s[2]), "=r"(s[3]) : "r"(at(&tile[lane][0])));
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(t[0]), "=r"(t[1]) : "r"(at(&tile[lane % 16 + 16][0])));
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(v) : "r"(r[3]));
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};"
               :: "r"(at(&back[lane][0])), "r"(r[0]), "r"(s[1]), "r"(r[2]), "r"(t[1]) : "memory");
  __syncthreads();
  for (int i = 0; i < 4; i++) o[i * 32 + lane] = r[i], o[(4 + i) * 32 + lane] = s[i];
  o[8 * 32 + lane] = t[0], o[9 * 32 + lane] = t[1], o[10 * 32 + lane] = v;
  for (int i = 0; i < 4; i++) o[(11 + i) * 32 + lane] = ((u32 *)&back[lane][0])[i];
}

// mma.sync of every type: a and b hold registers of lanes one after the other, warp by warp.
#define MMA_4_2(NAME, WORDS, OUT, C)                                                                                   \
  extern "C" __global__ void NAME(const u32 *a, const u32 *b, const OUT *c, OUT *d) {                                  \
    int i = blockIdx.x * 32 + threadIdx.x;                                                                             \
    a += 4 * i, b += 2 * i, c += 4 * i, d += 4 * i;                                                                    \
    asm("mma.sync.aligned." WORDS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"               \
        : "=" C(d[0]), "=" C(d[1]), "=" C(d[2]), "=" C(d[3])                                                           \
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), C(c[0]), C(c[1]), C(c[2]), C(c[3]));       \
  }
#define MMA_2_1(NAME, WORDS, OUT, C)                                                                                   \
  extern "C" __global__ void NAME(const u32 *a, const u32 *b, const OUT *c, OUT *d) {                                  \
    int i = blockIdx.x * 32 + threadIdx.x;                                                                             \
    a += 2 * i, b += i, c += 4 * i, d += 4 * i;                                                                        \
    asm("mma.sync.aligned." WORDS " {%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %8, %9, %10};"                              \
        : "=" C(d[0]), "=" C(d[1]), "=" C(d[2]), "=" C(d[3])                                                           \
        : "r"(a[0]), "r"(a[1]), "r"(b[0]), C(c[0]), C(c[1]), C(c[2]), C(c[3]));                                        \
  }
MMA_2_1(mma_f16_k8, "m16n8k8.row.col.f32.f16.f16.f32", float, "f")
MMA_4_2(mma_f16, "m16n8k16.row.col.f32.f16.f16.f32", float, "f")
MMA_2_1(mma_bf16_k8, "m16n8k8.row.col.f32.bf16.bf16.f32", float, "f")
MMA_4_2(mma_bf16, "m16n8k16.row.col.f32.bf16.bf16.f32", float, "f")
MMA_4_2(mma_e4m3, "m16n8k32.row.col.f32.e4m3.e5m2.f32", float, "f")
MMA_2_1(mma_s8_k16, "m16n8k16.row.col.s32.s8.u8.s32", int, "r")
MMA_4_2(mma_s8, "m16n8k32.row.col.satfinite.s32.s8.s8.s32", int, "r")
MMA_2_1(mma_s4_k32, "m16n8k32.row.col.s32.s4.u4.s32", int, "r")
MMA_4_2(mma_u4, "m16n8k64.row.col.s32.u4.s4.s32", int, "r")
MMA_2_1(mma_b1_k128, "m16n8k128.row.col.s32.b1.b1.s32.and.popc", int, "r")
MMA_4_2(mma_b1, "m16n8k256.row.col.s32.b1.b1.s32.and.popc", int, "r")

extern "C" __global__ void wmma_half(const half *a, const half *b, const float *c, float *d) {
  using namespace nvcuda;
  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> fa;
  wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major> fb;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> fc;
  int at = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * 256;
  wmma::load_matrix_sync(fa, a + at, 16);
  wmma::load_matrix_sync(fb, b + at, 16);
  wmma::load_matrix_sync(fc, c + at, 16, wmma::mem_row_major);
  wmma::mma_sync(fc, fa, fb, fc);
  wmma::store_matrix_sync(d + at, fc, 16, wmma::mem_col_major);
}

extern "C" __global__ void simd(const u32 *a, const u32 *b, const u32 *c, u32 *o) {
  int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
#define SIMD(K, NAME) asm(NAME " %0, %1, %2, %3;" : "=r"(o[K * n + i]) : "r"(a[i]), "r"(b[i]), "r"(c[i]));
  SIMD(0, "vadd4.u32.u32.u32") SIMD(1, "vadd4.s32.s32.s32.sat") SIMD(2, "vsub2.s32.s32.s32.sat")
  SIMD(3, "vavrg4.s32.s32.s32") SIMD(4, "vavrg2.u32.u32.u32") SIMD(5, "vabsdiff4.u32.u32.u32.add")
  SIMD(6, "vmin2.s32.s32.s32") SIMD(7, "vmax4.u32.u32.u32.add") SIMD(8, "vset4.u32.u32.ge")
  SIMD(9, "vavrg4.s32.s32.s32.add") SIMD(10, "vabsdiff2.s32.s32.s32") SIMD(11, "vset2.s32.s32.lt.add")
}

extern "C" __global__ void grid_sync(int *x, int *y, int n) {
  cooperative_groups::grid_group grid = cooperative_groups::this_grid();
  for (int step = 0; step < 3; step++) {
    for (int i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[n - 1 - i] + step;
    grid.sync();
    for (int i = grid.thread_rank(); i < n; i += grid.size()) x[i] = 3 * y[(i + 777) % n];
    grid.sync();
  }
}

extern "C" __global__ void bulk(const int *x, int *y, int tiles) {
  __shared__ alignas(128) int ring[2][256];
  __shared__ u64 full[2];
  int i = threadIdx.x;
  if (i == 0)
    for (int s = 0; s < 2; s++) asm volatile("mbarrier.init.shared.b64 [%0], 1;" :: "r"(at(&full[s])));
  asm volatile("fence.proxy.async;" ::: "memory");
  __syncthreads();
  for (int t = 0; t < tiles; t++) {
    int s = t % 2;
    const int *from = x + (blockIdx.x * tiles + t) * 256;
    if (i == 0) {
      asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], 1024;" :: "r"(at(&full[s])) : "memory");
      asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 1024, [%2];"
                   :: "r"(at(ring[s])), "l"(__cvta_generic_to_global(from)), "r"(at(&full[s])) : "memory");
    }
    u32 over = 0;
    while (!over)
      asm volatile("{.reg .pred p; mbarrier.try_wait.parity.shared.b64 p, [%1], %2; selp.b32 %0, 1, 0, p;}"
                   : "=r"(over) : "r"(at(&full[s])), "r"(t / 2 & 1) : "memory");
    int v = ring[s][255 - i];
    __syncthreads();
    ring[s][i] = v + t;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    if (i == 0) {
      asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 1024;"
                   :: "l"(__cvta_generic_to_global(y + (blockIdx.x * tiles + t) * 256)), "r"(at(ring[s])) : "memory");
      asm volatile("cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;" ::: "memory");
    }
    __syncthreads();
  }
}
