// What the L2, atomics, local memory and chains of loads cost on a card: each line is a kernel's median time of 20
// launches. nvcc -O3 -std=c++17 -arch=sm_90 -o probe bounds_probe.cu && ./probe [json=FILE] [once] [PART_OF_A_NAME]
// `once` launches each kernel a single time, for ncu; results/bounds_h100.md says what was found.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <string>
#include <vector>
typedef unsigned u32;
typedef unsigned long long u64;
struct P {
    u32 g, ls, e, K, ss, R, rs, ws, bi, swap;
    u64 bs1, bs2;
};
__device__ __forceinline__ u64 start(const P &p) {
    u32 l = threadIdx.x & 31, w = threadIdx.x >> 5;
    return (u64)(l % p.g) * p.e + (u64)(l / p.g) * p.ls + (u64)w * p.ws + (blockIdx.x % p.bi) * p.bs1 +
           (blockIdx.x / p.bi) * p.bs2;
}
template <class T> __device__ T val(u32 v);
template <> __device__ unsigned char val<unsigned char>(u32 v) { return v; }
template <> __device__ unsigned short val<unsigned short>(u32 v) { return v; }
template <> __device__ u32 val<u32>(u32 v) { return v; }
template <> __device__ uint2 val<uint2>(u32 v) { return make_uint2(v, v + 1); }
template <> __device__ uint4 val<uint4>(u32 v) { return make_uint4(v, v + 1, v + 2, v + 3); }
__device__ u32 fold(unsigned char v) { return v; }
__device__ u32 fold(unsigned short v) { return v; }
__device__ u32 fold(u32 v) { return v; }
__device__ u32 fold(uint2 v) { return v.x ^ v.y; }
__device__ u32 fold(uint4 v) { return v.x ^ v.y ^ v.z ^ v.w; }
template <class T> __global__ void k_store(char *b, P p) {
    u64 a = start(p);
    u32 v = threadIdx.x + blockIdx.x;
    if (p.swap) {
        for (u32 k = 0; k < p.K; k++)
            for (u32 r = 0; r < p.R; r++)
                *(T *)(b + a + k * p.ss + r * p.rs) = val<T>(v + k + r);
    } else {
        for (u32 r = 0; r < p.R; r++)
            for (u32 k = 0; k < p.K; k++)
                *(T *)(b + a + k * p.ss + r * p.rs) = val<T>(v + k + r);
    }
}
template <class T> __global__ void k_rmw(char *b, P p) {
    u64 a = start(p);
    for (u32 r = 0; r < p.R; r++)
        for (u32 k = 0; k < p.K; k++) {
            T *q = (T *)(b + a + k * p.ss + r * p.rs);
            *q = val<T>(fold(*q) + 1);
        }
}
template <class T> __global__ void k_load(char *b, P p, u32 *o) {
    u64 a = start(p);
    u32 s = 0;
    for (u32 r = 0; r < p.R; r++) {
#pragma unroll 4
        for (u32 k = 0; k < p.K; k++)
            s ^= fold(__ldcg((T *)(b + a + k * p.ss + r * p.rs)));
    }
    if (s == 0x12345)
        o[0] = s;
}
__device__ __forceinline__ u32 mix(u32 x) {
    x *= 0x9E3779B1u;
    x ^= x >> 15;
    x *= 0x85EBCA77u;
    x ^= x >> 13;
    return x;
}
// global atomics. mode 0: lane's word = (w%A)*as + l*ls ; 1: random of M words by lane; 2: one lane a warp, word
// (w%A)*as; 3: all lanes one random word
template <int KIND> __global__ void k_gatom(char *b, u32 *o, u32 mode, u32 A, u32 as, u32 ls, u32 M, u32 R, u32 one) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x, w = t >> 5, l = t & 31;
    u32 s = 0;
    for (u32 r = 0; r < R; r++) {
        u32 i;
        if (mode == 0)
            i = ((w + r) % A) * as + l * ls;
        else if (mode == 1)
            i = mix(t * R + r) & (M - 1);
        else if (mode == 2) {
            if (l)
                continue;
            i = ((w + r) % A) * as;
        } else
            i = mix(w * R + r) & (M - 1);
        if (KIND == 0)
            asm volatile("red.global.add.u32 [%0], %1;" ::"l"(b + 4ull * i), "r"(one) : "memory");
        if (KIND == 1)
            s += atomicAdd((u32 *)b + i, one);
        if (KIND == 2)
            asm volatile("red.global.add.f32 [%0], %1;" ::"l"(b + 4ull * i), "f"((float)one) : "memory");
        if (KIND == 3)
            asm volatile("red.global.add.f64 [%0], %1;" ::"l"(b + 8ull * i), "d"((double)one) : "memory");
        if (KIND == 4)
            s += atomicCAS((u32 *)b + i, r, one);
        if (KIND == 5) {
            u32 *q = (u32 *)b + i;
            u32 old = *(volatile u32 *)q, a;
            do {
                a = old;
                old = atomicCAS(q, a, a + one);
            } while (old != a);
        }
        if (KIND == 6)
            asm volatile("red.global.add.u64 [%0], %1;" ::"l"(b + 8ull * i), "l"((u64)one) : "memory");
        if (KIND == 7)
            s += atomicExch((u32 *)b + i, one);
        if (KIND == 8)
            asm volatile("red.global.max.s32 [%0], %1;" ::"l"(b + 4ull * i), "r"(one) : "memory");
        if (KIND == 9) {
            u64 *q = (u64 *)b + i;
            s += (u32)atomicCAS(q, (u64)r, (u64)one);
        }
    }
    if (s == 0x7654321)
        o[0] = s;
}
// shared atomics. lane's word: pat 0: l/d ; 1: (l%(32/d))+32*(l/(32/d)) ; 2: random of M ; 3: one random word a warp of
// M
template <int KIND> __global__ void k_satom(u32 *o, u32 pat, u32 d, u32 M, u32 R, u32 priv, u32 one) {
    extern __shared__ u32 sm[];
    u32 l = threadIdx.x & 31, w = threadIdx.x >> 5;
    for (u32 i = threadIdx.x; i < M * (priv ? blockDim.x / 32 : 1); i += blockDim.x)
        sm[i] = 0;
    __syncthreads();
    u32 base = priv ? w * M : 0;
    u32 s = 0;
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    u32 fixed = pat == 0 ? l / d : (l % (32 / d)) + 32 * (l / (32 / d));
    u32 x = pat == 3 ? mix(t >> 5) : mix(t);
    for (u32 r = 0; r < R; r++) {
        u32 i = fixed;
        if (pat >= 2) {
            x = x * 1664525u + 1013904223u;
            i = (x >> 16) & (M - 1);
        }
        i += base;
        if (KIND == 0)
            atomicAdd(sm + i, 1u);
        if (KIND == 1)
            asm volatile("red.shared.add.u32 [%0], %1;" ::"r"((u32)__cvta_generic_to_shared(sm + i)), "r"(one)
                         : "memory");
        if (KIND == 2)
            s += atomicAdd(sm + i, one);
        if (KIND == 3)
            s += atomicCAS(sm + i, r, one);
        if (KIND == 4)
            atomicAdd((float *)sm + i, (float)one);
        if (KIND == 5)
            atomicMax((int *)sm + i, (int)(one + r));
        if (KIND == 6)
            atomicAdd((double *)sm + i, (double)one);
        if (KIND == 7)
            atomicAdd((u64 *)sm + i, (u64)one);
        if (KIND == 8)
            s += atomicExch(sm + i, one);
        if (KIND == 9)
            sm[i] = r; // plain stores, for comparison
        if (KIND == 10)
            s += *(volatile u32 *)(sm + i);
    }
    __syncthreads();
    for (u32 i = threadIdx.x; i < M; i += blockDim.x)
        if (sm[i] + s == 0x7777777)
            o[0] = s;
}
template <int N> __global__ void k_local(u32 *o, u32 R, u32 mode) {
    u32 a[N];
    u32 t = blockIdx.x * blockDim.x + threadIdx.x, s = 0, x = mix(mode == 0 ? 1 : mode == 1 ? t : t >> 5);
    for (u32 i = 0; i < N; i++)
        a[(i + R) & (N - 1)] = i;
    for (u32 r = 0; r < R; r++) {
        x = x * 1664525u + 1013904223u;
        u32 i = (x >> 16) & (N - 1);
        a[i] += r;
        s += a[(i * 5 + 1) & (N - 1)];
    }
    if (s == 0x7654321)
        o[0] = s;
}
__global__ void k_fillnext(u32 *n, u32 M) {
    for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < M; i += gridDim.x * blockDim.x)
        n[i] = (i * 1664525u + 1013904223u) & (M - 1);
}
__global__ void k_chase(const u32 *n, u32 *o, u32 M, u32 R, u32 uni) {
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    u32 i = mix(uni ? t >> 5 : t) & (M - 1);
#pragma unroll 1
    for (u32 r = 0; r < R; r++)
        i = n[i];
    o[t] = i;
}
// one reduction a thread of 256 bins after a private histogram in shared memory: flush of blocks
__global__ void k_flush(u32 *bins, u32 v) {
    u32 x = v + threadIdx.x + blockIdx.x;
    asm volatile("red.global.add.u32 [%0], %1;" ::"l"(bins + threadIdx.x), "r"(x) : "memory");
}
__global__ void k_empty() {}
// clocks: mufu and dmma
__global__ void k_mufu(float *o, u64 *c, u32 R) {
    float a[8];
    for (int j = 0; j < 8; j++)
        a[j] = threadIdx.x * .01f + j * .1f;
    u64 g0, g1;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(g0));
    u64 c0 = clock64();
#pragma unroll 1
    for (u32 r = 0; r < R; r++) {
#pragma unroll
        for (int q = 0; q < 16; q++)
#pragma unroll
            for (int j = 0; j < 8; j++)
                asm volatile("ex2.approx.ftz.f32 %0,%0;" : "+f"(a[j]));
    }
    u64 c1 = clock64();
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(g1));
    u32 t = blockIdx.x * blockDim.x + threadIdx.x;
    float s = 0;
    for (int j = 0; j < 8; j++)
        s += a[j];
    o[t] = s;
    if (threadIdx.x == 0) {
        c[2 * blockIdx.x] = c1 - c0;
        c[2 * blockIdx.x + 1] = g1 - g0;
    }
}
__global__ void k_dmma(double *o, u64 *c, u32 R) {
    double d[4][4];
    double a[8], b[4];
    for (int j = 0; j < 8; j++)
        a[j] = 2;
    for (int j = 0; j < 4; j++)
        b[j] = -1;
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++)
            d[j][k] = j + k;
    u64 g0, g1;
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(g0));
    u64 c0 = clock64();
#pragma unroll 1
    for (u32 r = 0; r < R; r++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 "
                         "{%0,%1,%2,%3},{%4,%5,%6,%7,%8,%9,%10,%11},{%12,%13,%14,%15},{%0,%1,%2,%3};"
                         : "+d"(d[j][0]), "+d"(d[j][1]), "+d"(d[j][2]), "+d"(d[j][3])
                         : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]),
                           "d"(b[0]), "d"(b[1]), "d"(b[2]), "d"(b[3]));
    u64 c1 = clock64();
    asm volatile("mov.u64 %0,%globaltimer;" : "=l"(g1));
    double s = 0;
    for (int j = 0; j < 4; j++)
        for (int k = 0; k < 4; k++)
            s += d[j][k];
    o[blockIdx.x * blockDim.x + threadIdx.x] = s;
    if (threadIdx.x == 0) {
        c[2 * blockIdx.x] = c1 - c0;
        c[2 * blockIdx.x + 1] = g1 - g0;
    }
}

static char *B;
static u32 *O;
static char *F;
static const size_t BYTES = 256u << 20, FL = 128u << 20;
static bool once;
static FILE *J;
static int at = 0;
static const char *only;
static cudaEvent_t e0, e1;
template <class L> void timed(const std::string &name, L launch, bool cold = true, const char *more = "") {
    if (only && !strstr(name.c_str(), only))
        return;
    if (once) {
        launch();
        cudaDeviceSynchronize();
        fprintf(J, "%d %s\n", at++, name.c_str());
        return;
    }
    launch();
    if (cudaDeviceSynchronize() != cudaSuccess) {
        fprintf(stderr, "%s failed: %s\n", name.c_str(), cudaGetErrorString(cudaGetLastError()));
        exit(1);
    }
    std::vector<float> t;
    float total = 0;
    for (int i = 0; i < 20 && total < 60; i++) {
        if (cold)
            cudaMemsetAsync(F, i, FL);
        else
            launch();
        cudaEventRecord(e0);
        launch();
        cudaEventRecord(e1);
        cudaEventSynchronize(e1);
        float ms;
        cudaEventElapsedTime(&ms, e0, e1);
        t.push_back(ms * 1e3f);
        total += ms;
    }
    std::sort(t.begin(), t.end());
    fprintf(J, "{\"name\":\"%s\",\"us\":%.3f,\"min\":%.3f%s%s},\n", name.c_str(), t[t.size() / 2], t[0],
            *more ? "," : "", more);
    fflush(J);
    printf("%-34s %9.2f %9.2f\n", name.c_str(), t[t.size() / 2], t[0]);
    fflush(stdout);
}
template <class T> void st(const char *name, P p, u32 grid, int what = 0, bool cold = true) {
    char m[300];
    p.e = sizeof(T);
    snprintf(m, 300, "\"p\":[%u,%u,%u,%u,%u,%u,%u,%u,%u,%u,%llu,%llu],\"grid\":%u", p.g, p.ls, p.e, p.K, p.ss, p.R,
             p.rs, p.ws, p.bi, p.swap, p.bs1, p.bs2, grid);
    timed(
        name,
        [=] {
            if (what == 0)
                k_store<T><<<grid, 256>>>(B, p);
            else if (what == 1)
                k_rmw<T><<<grid, 256>>>(B, p);
            else
                k_load<T><<<grid, 256>>>(B, p, O);
        },
        cold, m);
}
template <int K>
void ga(const char *name, u32 mode, u32 A, u32 as, u32 ls, u32 M, u32 R, u32 grid = 1056, u32 block = 256) {
    char m[200];
    snprintf(m, 200, "\"k\":%d,\"a\":[%u,%u,%u,%u,%u,%u,%u,%u]", K, mode, A, as, ls, M, R, grid, block);
    timed(name, [=] { k_gatom<K><<<grid, block>>>(B, O, mode, A, as, ls, M, R, 1); }, true, m);
}
template <int K> void sa(const char *name, u32 pat, u32 d, u32 M, u32 R, u32 priv, u32 grid = 1056, u32 block = 256) {
    char m[200];
    snprintf(m, 200, "\"k\":%d,\"s\":[%u,%u,%u,%u,%u,%u,%u]", K, pat, d, M, R, priv, grid, block);
    u32 sh = M * 8 * (priv ? block / 32 : 1);
    timed(name, [=] { k_satom<K><<<grid, block, sh>>>(O, pat, d, M, R, priv, 1); }, false, m);
}
// P: g, ls, e, K, ss, R, rs, ws, bi, swap, bs1, bs2 ; 8 warps a block
static void list() {
    typedef unsigned char u8;
    typedef unsigned short u16;
    timed("empty", [] { k_empty<<<1, 1>>>(); });
    timed("empty4096x256", [] { k_empty<<<4096, 256>>>(); });
    // --- stores: full sectors
    st<u32>("st full w4 line", {32, 0, 4, 8, 1024, 1, 0, 128, 1, 0, 0, 8192}, 16384); // 128 MB, 4.2M sectors
    st<uint4>("st full w16 line", {32, 0, 16, 1, 0, 2, 4096, 512, 1, 0, 0, 8192}, 16384);
    st<u32>("st full w4 1/line", {8, 128, 4, 16, 512, 1, 0, 65536 / 8, 1, 0, 0, 65536},
            2048); // 16 KB lines? each lane group its own line
    st<uint4>("st full w16 1/line", {2, 128, 16, 4, 2048, 1, 0, 8192, 1, 0, 0, 65536}, 4096);
    st<uint4>("st full w16 1/line L2", {2, 128, 16, 4, 2048, 16, 0, 8192, 1, 0, 0, 65536},
              256);                                                                      // 16 MB, written 16 times
    st<u32>("st full w4 line L2", {32, 0, 4, 8, 1024, 16, 0, 128, 1, 0, 0, 8192}, 2048); // 16 MB, 16 times
    // --- words that nobody completes; per sector 4 bytes of 32
    st<u32>("st w4 of 32 4/line never", {1, 32, 4, 8, 8192, 1, 0, 1024, 1, 0, 0, 65536},
            4096); // 256 MB span, 8.4M sectors
    st<u32>("st w4 of 32 4/line never 32MB", {1, 32, 4, 4, 8192, 4, 0, 1024, 1, 0, 0, 32768},
            1024);                                                                                 // same words 4 times
    st<u32>("st w4 of 32 1/line never", {1, 128, 4, 8, 4096, 1, 0, 32768, 1, 0, 0, 262144}, 1024); // 2.1M sectors
    st<u32>("st w4 of 32 1/line never x4", {1, 128, 4, 8, 4096, 4, 0, 32768, 1, 0, 0, 262144}, 1024);
    st<uint2>("st w8 of 32 4/line never", {1, 32, 8, 8, 8192, 1, 0, 1024, 1, 0, 0, 65536}, 4096);
    st<uint4>("st w16 of 32 4/line never", {1, 32, 16, 8, 8192, 1, 0, 1024, 1, 0, 0, 65536}, 4096);
    st<uint4>("st w16 of 32 1/line never", {1, 128, 16, 8, 4096, 1, 0, 32768, 1, 0, 0, 262144}, 1024);
    st<u32>("st 24 of 32 4/line never", {6, 32, 4, 8, 1024, 1, 0, 128, 1, 0, 0, 8192},
            16384); // lanes in sixes: 24 bytes of a sector
    st<u8>("st w1 of 32 4/line never", {1, 32, 1, 8, 8192, 1, 0, 1024, 1, 0, 0, 65536}, 4096);
    // --- completed by the next instructions of the warp
    st<u32>("st w4 4/line next insn", {1, 32, 4, 8, 4, 1, 0, 1024, 1, 0, 0, 8192}, 8192); // 64 MB, 16.8M partial
    st<u32>("st w4 1/line next insn 1sector", {1, 128, 4, 8, 4, 1, 0, 4096, 1, 0, 0, 32768}, 8192); // 256 MB span
    st<u32>("st w4 1/line next insn line", {1, 128, 4, 32, 4, 1, 0, 4096, 1, 0, 0, 32768}, 2048);   // 64 MB
    st<uint2>("st w8 4/line next insn", {1, 32, 8, 4, 8, 1, 0, 1024, 1, 0, 0, 8192}, 8192);
    st<uint4>("st w16 4/line next insn", {1, 32, 16, 2, 16, 1, 0, 1024, 1, 0, 0, 8192}, 16384);
    st<uint4>("st w16 1/line next insn", {1, 128, 16, 8, 16, 1, 0, 4096, 1, 0, 0, 32768}, 4096);
    st<u8>("st w1 4/line next insn", {1, 32, 1, 32, 1, 1, 0, 1024, 1, 0, 0, 8192}, 1024);
    st<u8>("st w1 stride 4 next insn", {1, 4, 1, 4, 1, 1, 0, 128, 1, 0, 0, 1024}, 32768);
    st<u16>("st w2 stride 4 next insn", {1, 4, 2, 2, 2, 1, 0, 128, 1, 0, 0, 1024}, 65536);
    st<u32>("st w4 stride 8 next insn", {1, 8, 4, 2, 4, 1, 0, 256, 1, 0, 0, 2048}, 32768);
    st<u32>("st store3", {1, 12, 4, 3, 4, 1, 0, 384, 1, 0, 0, 3072}, 16384);
    st<u32>("st store3 as filed", {1, 12, 4, 3, 4, 1, 0, 384, 1, 0, 0, 3072}, 4096);
    st<u32>("st store9 as filed", {1, 36, 4, 9, 4, 1, 0, 1152, 1, 0, 0, 9216}, 4096);
    st<u32>("st store5", {1, 20, 4, 5, 4, 1, 0, 640, 1, 0, 0, 5120}, 8192);
    st<u32>("st store7", {1, 28, 4, 7, 4, 1, 0, 896, 1, 0, 0, 7168}, 8192);
    st<u32>("st store16", {1, 64, 4, 16, 4, 1, 0, 2048, 1, 0, 0, 16384}, 4096);
    st<u32>("st store17", {1, 68, 4, 17, 4, 1, 0, 2176, 1, 0, 0, 17408}, 4096);
    st<u32>("st store33", {1, 132, 4, 33, 4, 1, 0, 4224, 1, 0, 0, 33792}, 2048);
    st<u8>("st bytes3 as filed", {1, 3, 1, 3, 1, 1, 0, 96, 1, 0, 0, 768}, 16384);
    // --- completed by the same warp later, R rows in between
    st<u32>("st w4 4/line warp later 4", {1, 32, 4, 8, 4, 4, 1024, 4096, 1, 1, 0, 32768}, 2048);
    st<u32>("st w4 4/line warp later 32", {1, 32, 4, 8, 4, 32, 1024, 32768, 1, 1, 0, 262144}, 256);
    st<u32>("st w4 1/line warp later 8", {1, 128, 4, 8, 4, 8, 4096, 32768, 1, 1, 0, 262144}, 1024);
    // --- by other warps of the block
    st<u32>("st w4 4/line other warps", {1, 32, 4, 8, 1024, 1, 0, 4, 1, 0, 0, 8192}, 8192);
    st<u32>("st w4 1/line other warps", {1, 128, 4, 8, 4096, 1, 0, 4, 1, 0, 0, 32768}, 8192);
    st<u32>("st w4 1/line other warps far", {1, 4096, 4, 4, 32, 1, 0, 4, 1, 0, 0, 131072}, 2048);
    st<uint4>("st w16 4/line other warps", {1, 32, 16, 4, 1024, 1, 0, 16, 2, 0, 4096, 8192}, 8192);
    // --- by other blocks: neighbours, and a share of the launch later
    st<u32>("st w4 4/line next blocks", {1, 32, 4, 8, 8192, 1, 0, 1024, 8, 0, 4, 65536}, 8192);
    st<u32>("st w4 1/line next blocks", {1, 128, 4, 8, 4096, 1, 0, 32768, 8, 0, 4, 262144}, 8192);
    st<u32>("st w4 4/line blocks later 64MB", {1, 32, 4, 8, 8192, 1, 0, 1024, 1024, 0, 65536, 4}, 8192);
    st<u32>("st w4 4/line blocks later 16MB", {1, 32, 4, 8, 8192, 1, 0, 1024, 256, 0, 65536, 4}, 2048);
    st<u32>("st w4 4/line blocks later 256MB", {1, 32, 4, 8, 8192, 1, 0, 1024, 4096, 0, 65536, 4}, 32768);
    st<uint4>("st w16 4/line blocks later 64MB", {1, 32, 16, 8, 8192, 1, 0, 1024, 1024, 0, 65536, 16}, 2048);
    // --- read before they are written
    st<u32>("rmw w4 4/line never", {1, 32, 4, 8, 8192, 1, 0, 1024, 1, 0, 0, 65536}, 2048, 1);
    st<u32>("rmw full w4 line", {32, 0, 4, 8, 1024, 1, 0, 128, 1, 0, 0, 8192}, 16384, 1);
    st<u32>("rmw store3", {1, 12, 4, 3, 4, 1, 0, 384, 1, 0, 0, 3072}, 8192, 1);
    // --- loads
    st<u32>("ld w4 4/line cold", {1, 32, 4, 8, 8192, 1, 0, 1024, 1, 0, 0, 65536}, 4096, 2);
    st<u32>("ld w4 1/line cold", {1, 128, 4, 8, 4096, 1, 0, 32768, 1, 0, 0, 262144}, 1024, 2);
    st<uint4>("ld full line cold", {32, 0, 16, 4, 4096, 1, 0, 512, 1, 0, 0, 16384}, 8192, 2);
    st<u32>("ld w4 4/line L2", {1, 32, 4, 8, 8192, 16, 0, 1024, 1, 0, 0, 65536}, 256, 2, false);
    st<u32>("ld w4 1/line L2", {1, 128, 4, 8, 4096, 16, 0, 32768, 1, 0, 0, 262144}, 64, 2, false);
    st<uint4>("ld full line L2", {32, 0, 16, 4, 4096, 16, 0, 512, 1, 0, 0, 16384}, 1024, 2, false);
    // --- global atomics
    ga<0>("red one lane one word", 2, 1, 0, 0, 0, 64);
    ga<0>("red one lane 2 words/sector", 2, 2, 1, 0, 0, 64);
    ga<0>("red one lane 8 words/sector", 2, 8, 1, 0, 0, 64);
    ga<0>("red one lane 2 lines", 2, 2, 32, 0, 0, 64);
    ga<0>("red one lane 8 lines", 2, 8, 32, 0, 0, 64);
    ga<0>("red one lane 64 lines", 2, 64, 32, 0, 0, 64);
    ga<0>("red one lane 1024 lines", 2, 1024, 32, 0, 0, 64);
    ga<0>("red one lane 65536 lines", 2, 65536, 32, 0, 0, 64);
    ga<0>("red 4 sectors/line 1 line", 0, 1, 32, 1, 0, 64);
    ga<0>("red line 2 lines", 0, 2, 32, 1, 0, 64);
    ga<0>("red line 8 lines", 0, 8, 32, 1, 0, 64);
    ga<0>("red line 32 lines", 0, 32, 32, 1, 0, 64);
    ga<0>("red line 128 lines", 0, 128, 32, 1, 0, 64);
    ga<0>("red line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<0>("red line 65536 lines", 0, 65536, 32, 1, 0, 64);
    ga<0>("red 1/sector 8 lines", 0, 1, 256, 8, 0, 32);
    ga<0>("red 1/sector 8192 lines", 0, 1024, 256, 8, 0, 32);
    ga<0>("red 1/line 32 lines", 0, 1, 1024, 32, 0, 32);
    ga<0>("red 1/line 32768 lines", 0, 1024, 1024, 32, 0, 32);
    ga<0>("red all lanes one word", 3, 1, 0, 0, 1, 16);
    ga<0>("red all lanes 1024 words", 3, 1, 0, 0, 1024, 16);
    ga<0>("red random 32", 1, 1, 0, 0, 32, 32);
    ga<0>("red random 256", 1, 1, 0, 0, 256, 32);
    ga<0>("red random 4096", 1, 1, 0, 0, 4096, 32);
    ga<0>("red random 65536", 1, 1, 0, 0, 65536, 32);
    ga<0>("red random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<0>("red random 16M", 1, 1, 0, 0, 1 << 24, 32);
    ga<8>("red max random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<2>("redf32 random 256", 1, 1, 0, 0, 256, 32);
    ga<2>("redf32 random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<2>("redf32 all lanes one word", 3, 1, 0, 0, 1, 16);
    ga<2>("redf32 line 1 line", 0, 1, 32, 1, 0, 64);
    ga<2>("redf32 line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<2>("redf32 one lane one word", 2, 1, 0, 0, 0, 64);
    ga<3>("redf64 random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<3>("redf64 line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<3>("redf64 one lane one word", 2, 1, 0, 0, 0, 64);
    ga<3>("redf64 random 256", 1, 1, 0, 0, 256, 32);
    ga<6>("redu64 line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<6>("redu64 one lane one word", 2, 1, 0, 0, 0, 64);
    ga<1>("atom one lane one word", 2, 1, 0, 0, 0, 64);
    ga<1>("atom line 1 line", 0, 1, 32, 1, 0, 64);
    ga<1>("atom line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<1>("atom random 256", 1, 1, 0, 0, 256, 32);
    ga<1>("atom random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<4>("cas one lane one word", 2, 1, 0, 0, 0, 64);
    ga<4>("cas line 1 line", 0, 1, 32, 1, 0, 32);
    ga<4>("cas line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<4>("cas random 256", 1, 1, 0, 0, 256, 32);
    ga<4>("cas random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<9>("cas64 random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<7>("exch random 1M", 1, 1, 0, 0, 1 << 20, 32);
    ga<7>("exch line 1024 lines", 0, 1024, 32, 1, 0, 64);
    ga<5>("casloop random 4096", 1, 1, 0, 0, 4096, 4);
    ga<5>("casloop random 1M", 1, 1, 0, 0, 1 << 20, 8);
    ga<5>("casloop one lane one word", 2, 1, 0, 0, 0, 2, 132);
    timed("flush 65536x256 bins", [] { k_flush<<<65536, 256>>>((u32 *)B, 1); });
    timed("flush 8192x256 bins", [] { k_flush<<<8192, 256>>>((u32 *)B, 1); });
    // --- shared atomics: time of R requests a warp, 64 warps an SM
    const u32 R = 128;
    for (u32 d = 1; d <= 32; d *= 2) {
        char n[60];
        snprintf(n, 60, "s add1 word %u", d);
        sa<0>(n, 0, d, 1024, R, 0);
        snprintf(n, 60, "s add1 bank %u", d);
        sa<0>(n, 1, d, 1024, R, 0);
        snprintf(n, 60, "s red word %u", d);
        sa<1>(n, 0, d, 1024, R, 0);
        snprintf(n, 60, "s red bank %u", d);
        sa<1>(n, 1, d, 1024, R, 0);
        snprintf(n, 60, "s atom word %u", d);
        sa<2>(n, 0, d, 1024, R, 0);
        snprintf(n, 60, "s cas word %u", d);
        sa<3>(n, 0, d, 1024, R, 0);
        snprintf(n, 60, "s cas bank %u", d);
        sa<3>(n, 1, d, 1024, R, 0);
        snprintf(n, 60, "s f32 word %u", d);
        sa<4>(n, 0, d, 1024, R / 4, 0);
        snprintf(n, 60, "s f32 bank %u", d);
        sa<4>(n, 1, d, 1024, R / 4, 0);
        snprintf(n, 60, "s f32 word %u own", d);
        sa<4>(n, 0, d, 32, R / 4, 1);
        snprintf(n, 60, "s f32 word %u one warp", d);
        sa<4>(n, 0, d, 1024, R / 4, 0, 132, 32);
        snprintf(n, 60, "s f64 word %u own", d);
        sa<6>(n, 0, d, 64, R / 8, 1);
        snprintf(n, 60, "s red word %u one warp", d);
        sa<1>(n, 0, d, 1024, R, 0, 132, 32);
        snprintf(n, 60, "s atom word %u one warp", d);
        sa<2>(n, 0, d, 1024, R, 0, 132, 32);
        snprintf(n, 60, "s store word %u", d);
        sa<9>(n, 0, d, 1024, R, 0);
        snprintf(n, 60, "s store bank %u", d);
        sa<9>(n, 1, d, 1024, R, 0);
    }
    sa<0>("s add1 random 256", 2, 1, 256, R, 0);
    sa<1>("s red random 256", 2, 1, 256, R, 0);
    sa<2>("s atom random 256", 2, 1, 256, R, 0);
    sa<3>("s cas random 256", 2, 1, 256, R, 0);
    sa<5>("s max random 256", 2, 1, 256, R, 0);
    sa<8>("s exch random 256", 2, 1, 256, R, 0);
    sa<4>("s f32 random 256", 2, 1, 256, R / 4, 0);
    sa<4>("s f32 random 32", 2, 1, 32, R / 4, 0);
    sa<4>("s f32 random 1024", 2, 1, 1024, R / 4, 0);
    sa<4>("s f32 random 256 own", 2, 1, 256, R / 4, 1, 528, 256);
    sa<6>("s f64 random 256", 2, 1, 256, R / 8, 0);
    sa<7>("s u64 random 256", 2, 1, 256, R / 8, 0);
    sa<0>("s add1 one bin", 0, 32, 256, R, 0);
    sa<4>("s f32 one bin", 0, 32, 256, R / 16, 0);
    sa<9>("s store random 256", 2, 1, 256, R, 0);
    sa<10>("s load random 256", 2, 1, 256, R, 0);
    // --- local arrays
    for (u32 m = 0; m < 3; m++) {
        char n[60];
        const char *w = m == 0 ? "uniform" : m == 1 ? "lanes" : "warps";
        snprintf(n, 60, "local 16 %s", w);
        timed(n, [=] { k_local<16><<<1056, 256>>>(O, 128, m); }, false);
        snprintf(n, 60, "local 64 %s", w);
        timed(n, [=] { k_local<64><<<1056, 256>>>(O, 128, m); }, false);
        snprintf(n, 60, "local 256 %s", w);
        timed(n, [=] { k_local<256><<<1056, 256>>>(O, 128, m); }, false);
        snprintf(n, 60, "local 64 %s 8448", w);
        timed(n, [=] { k_local<64><<<8448, 256>>>(O, 16, m); }, false);
    }
    // --- chasing
    const u32 sizes[] = {1u << 12, 1u << 18, 1u << 22, 1u << 26};
    for (u32 M : sizes) {
        if (!once) {
            k_fillnext<<<1024, 256>>>((u32 *)B, M);
            cudaDeviceSynchronize();
        }
        for (u32 uni = 0; uni < 2; uni++)
            for (u32 grid : {1u, 132u, 1056u}) {
                char n[60];
                u32 b = grid == 1 ? 32 : grid == 132 ? 128 : 256;
                snprintf(n, 60, "chase %u KB %s %ux%u", M / 256, uni ? "uniform" : "lanes", grid, b);
                timed(n, [=] { k_chase<<<grid, b>>>((u32 *)B, O, M, 32, uni); }, true);
            }
    }
    // --- clocks
    if (!once) {
        u64 *c;
        cudaMalloc(&c, 1 << 20);
        for (int k = 0; k < 2; k++)
            for (int i = 0; i < 3; i++) {
                u32 Rr = k ? 200000 : 60000;
                auto h0 = std::chrono::steady_clock::now();
                cudaEventRecord(e0);
                if (k)
                    k_dmma<<<132, 512>>>((double *)B, c, Rr);
                else
                    k_mufu<<<1056, 256>>>((float *)B, c, Rr / 8);
                cudaEventRecord(e1);
                cudaEventSynchronize(e1);
                auto h1 = std::chrono::steady_clock::now();
                float ms;
                cudaEventElapsedTime(&ms, e0, e1);
                std::vector<u64> h(264);
                cudaMemcpy(h.data(), c, 264 * 8, cudaMemcpyDeviceToHost);
                printf("clock %s: event %.4f ms host %.4f ms clocks %llu (block 5) globaltimer %.4f ms -> %.1f MHz by "
                       "globaltimer; work per launch %.6g\n",
                       k ? "dmma" : "mufu", ms, std::chrono::duration<double, std::milli>(h1 - h0).count(), h[10],
                       h[11] * 1e-6, h[10] * 1e3 / (double)h[11],
                       k ? 132. * 16 * 4 * Rr * 2048 : 1056. * 256 * (Rr / 8) * 128);
            }
    }
}
int main(int c, char **v) {
    only = 0;
    J = stdout;
    for (int i = 1; i < c; i++) {
        if (!strcmp(v[i], "once"))
            once = true;
        else if (!strncmp(v[i], "json=", 5))
            J = fopen(v[i] + 5, "w");
        else
            only = v[i];
    }
    cudaMalloc(&B, BYTES + (1 << 20));
    cudaMalloc(&O, 64 << 20);
    cudaMalloc(&F, FL);
    cudaMemset(B, 0, BYTES);
    cudaEventCreate(&e0);
    cudaEventCreate(&e1);
    list();
    fclose(J);
    return 0;
}
