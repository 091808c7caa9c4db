// nvcc -gencode arch=compute_90a,code=sm_90a -O3 -o bench bench.cu -ldl ; ./bench CUBLAS_PATH
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <dlfcn.h>
#include <functional>
#include <string>
#include <vector>
#include "half.cuh"
#include "tf32.cuh"
#include "split.cuh"
#include "simt.cuh"
#include "simt2.cuh"
#include "turn.cuh"
#include "simt3.cuh"

#define CHECK(x) do { cudaError_t e_ = (x); if (e_ != cudaSuccess) { printf("%s: %s line %d\n", #x, cudaGetErrorString(e_), __LINE__); } } while (0)
typedef CUresult (*Encode)(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *, const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
static Encode encode;
static CUtensorMap map_of(void *p, bool half, int rows, int cols, int box_rows, int box_cols, bool swizzled = true)
{
    CUtensorMap map;
    int width = half ? 2 : 4;
    cuuint64_t sizes[2] = {(cuuint64_t)cols, (cuuint64_t)rows}, strides[1] = {(cuuint64_t)cols * width};
    cuuint32_t box[2] = {(cuuint32_t)box_cols, (cuuint32_t)box_rows}, ones[2] = {1, 1};
    CUresult r = encode(&map, half ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, p, sizes, strides, box, ones,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, swizzled ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    if (r) printf("encode failed: %d\n", r);
    return map;
}
template <class T> __global__ void fill(T *p, size_t n, unsigned seed)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        unsigned long long x = (i + 1) * 0x9E3779B97F4A7C15ull + seed * 0xD1B54A32D192ED03ull;
        x ^= x >> 31; x *= 0xBF58476D1CE4E5B9ull; x ^= x >> 29;
        p[i] = (T)((float)(x >> 40) / (1 << 24));
    }
}
template <class T> __global__ void differ(const T *x, const T *y, size_t n, unsigned *worst)
{
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) {
        float d = fabsf((float)x[i] - (float)y[i]) / fabsf((float)y[i]);
        if (!(d >= 0)) d = 1e30f;
        atomicMax(worst, __float_as_uint(d));
    }
}
// float64 dot products of some elements
__global__ void exact(const float *a, const float *b, const float *c, int m, int k, int n, unsigned *worst)
{
    unsigned row = (blockIdx.x * 7919u) % m, col = (blockIdx.x * 104729u + 17) % n;
    __shared__ double part[128];
    double s = 0;
    for (int i = threadIdx.x; i < k; i += 128) s += (double)a[(size_t)row * k + i] * b[(size_t)i * n + col];
    part[threadIdx.x] = s;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int i = 1; i < 128; i++) s += part[i];
        atomicMax(worst, __float_as_uint((float)(fabs((double)c[(size_t)row * n + col] - s) / s)));
    }
}

struct Row { std::string name; std::function<void()> run; std::vector<float> t; double err = -1; bool dead = false; };
static std::vector<Row> rows;
static void *A, *B, *C, *R, *flush;
static const size_t FLUSH = 256u << 20;
static unsigned *worst;

template <class F> static void prepare(F f, int shared, int cluster)
{
    CHECK(cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
    if (cluster > 8) CHECK(cudaFuncSetAttribute(f, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
}
template <class... X, class... Y> static void launch(void (*f)(X...), int grid, int threads, int shared, int cluster, Y... args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = grid, config.blockDim = threads, config.dynamicSmemBytes = shared;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {(unsigned)cluster, 1, 1};
    config.attrs = &attribute, config.numAttrs = cluster > 1 ? 1 : 0;
    CHECK(cudaLaunchKernelEx(&config, f, X(args)...));
}
static bool wanted(const std::string &name) { const char *w = getenv("ONLY"); return !w || name.find(w) != std::string::npos; }

template <class P> static void half_row(const char *name, int m, int k, int n, int most = 128)
{
    if (!wanted(name)) return;
    CUtensorMap ma = map_of(A, true, m, k, P::BM, 64), mb = map_of(B, true, k, n, 64, 64), mc = map_of(C, true, m, n, 64, 64);
    int tiles = (m + P::BM * P::CLUSTER - 1) / (P::BM * P::CLUSTER) * P::CLUSTER * ((n + P::BN - 1) / P::BN);
    prepare(half_kernel<P>, P::SHARED, P::CLUSTER);
    rows.push_back({name, [=] { launch(half_kernel<P>, std::min(tiles, most), P::THREADS, P::SHARED, P::CLUSTER, ma, mb, mc, (__nv_bfloat16 *)C, m, k, n); }});
}
template <class P> static void tf32_row(const char *name, int m, int k, int n, int most = 128)
{
    if (!wanted(name)) return;
    CUtensorMap ma = map_of(A, false, m, k, P::BM / P::CLUSTER, 32), mb = map_of(B, false, k, n, 32, 32);
    int tiles = (m + P::BM - 1) / P::BM * ((n + P::BN * P::CLUSTER - 1) / (P::BN * P::CLUSTER)) * P::CLUSTER;
    prepare(tf32_kernel<P>, P::SHARED, P::CLUSTER);
    rows.push_back({name, [=] { launch(tf32_kernel<P>, std::min(tiles, most), P::THREADS, P::SHARED, P::CLUSTER, ma, mb, (float *)C, m, k, n); }});
}
template <class P> static void split_row(const char *name, int m, int k, int n, int most = 128)
{
    if (!wanted(name)) return;
    CUtensorMap ma = map_of(A, false, m, k, P::BM / P::CLUSTER, 32), mb = map_of(B, false, k, n, 32, 32);
    int tiles = (m + P::BM - 1) / P::BM * ((n + P::BN * P::CLUSTER - 1) / (P::BN * P::CLUSTER)) * P::CLUSTER;
    prepare(split_kernel<P>, P::SHARED, P::CLUSTER);
    rows.push_back({name, [=] { launch(split_kernel<P>, std::min(tiles, most), P::THREADS, P::SHARED, P::CLUSTER, ma, mb, (float *)C, m, k, n); }});
}

template <class P> static void simt_row(const char *name, int m, int k, int n)
{
    if (!wanted(name)) return;
    int tiles = (m + P::BM - 1) / P::BM * ((n + P::BN - 1) / P::BN);
    prepare(simt_kernel<P>, P::SHARED, 1);
    rows.push_back({name, [=] { launch(simt_kernel<P>, tiles, P::THREADS, P::SHARED, 1, (const float *)A, (const float *)B, (float *)C, m, k, n); }});
}
template <class P> static void simt2_row(const char *name, int m, int k, int n)
{
    if (!wanted(name)) return;
    int tiles = (m + P::BM - 1) / P::BM * ((n + P::BN - 1) / P::BN);
    CUtensorMap ma = map_of(A, false, m, k, P::BM, 32), mb = map_of(B, false, k, n, 32, P::BN, false);
    prepare(simt2_kernel<P>, P::SHARED, 1);
    rows.push_back({name, [=] { launch(simt2_kernel<P>, tiles, P::THREADS, P::SHARED, 1, ma, mb, (const float *)A, (const float *)B, (float *)C, m, k, n); }});
}
template <class P> static void simt3_row(const char *name, int m, int k, int n)
{
    if (!wanted(name)) return;
    int tiles = (m + P::BM - 1) / P::BM * ((n + P::BN - 1) / P::BN);
    CUtensorMap ma = map_of(A, false, m, k, P::BM, 32), mb = map_of(B, false, k, n, 32, P::BN, false);
    prepare(simt3_kernel<P>, P::SHARED, 1);
    rows.push_back({name, [=] { launch(simt3_kernel<P>, tiles, P::THREADS, P::SHARED, 1, ma, mb, (const float *)A, (const float *)B, (float *)C, m, k, n); }});
}
template <class P> static void turn_row(const char *name, int m, int k, int n, int most = 128)
{
    if (!wanted(name)) return;
    CUtensorMap ma = map_of(A, true, m, k, P::BM / P::CLUSTER, 64), mb = map_of(B, true, k, n, 64, 64), mc = map_of(C, true, m, n, 64, 64);
    int tiles = (m + P::BM - 1) / P::BM * ((n + P::BN * P::CLUSTER - 1) / (P::BN * P::CLUSTER)) * P::CLUSTER;
    prepare(turn_kernel<P>, P::SHARED, P::CLUSTER);
    rows.push_back({name, [=] { launch(turn_kernel<P>, std::min(tiles, most), P::THREADS, P::SHARED, P::CLUSTER, ma, mb, mc, (__nv_bfloat16 *)C, m, k, n); }});
}
static void *handle;
static int (*gemm)(void *, int, int, int, int, int, const void *, const void *, int, int, const void *, int, int, const void *, void *, int, int, int, int);
static void cublas(const char *name, int type, int compute, int m, int k, int n)
{
    rows.push_back({name, [=] {
        float one = 1, zero = 0;
        int r = gemm(handle, 0, 0, n, m, k, &one, B, type, n, A, type, k, &zero, C, type, n, compute, -1);
        if (r) printf("cublas status %d\n", r);
    }});
}

static void measure(const char *title, bool half, int m, int k, int n, int turns)
{
    cudaEvent_t e0, e1;
    cudaEventCreate(&e0), cudaEventCreate(&e1);
    size_t outs = (size_t)m * n;
    printf("== %s %d x %d x %d\n", title, m, k, n);
    for (size_t i = 0; i < rows.size(); i++) {
        Row &r = rows[i];
        CHECK(cudaMemset(C, 0xFF, outs * (half ? 2 : 4)));
        r.run();
        cudaError_t e = cudaDeviceSynchronize();
        if (e != cudaSuccess) { printf("%s: %s\n", r.name.c_str(), cudaGetErrorString(e)); exit(1); }
        CHECK(cudaMemset(worst, 0, 8));
        if (i == 0) CHECK(cudaMemcpy(R, C, outs * (half ? 2 : 4), cudaMemcpyDeviceToDevice));
        if (half) differ<<<256, 256>>>((__nv_bfloat16 *)C, (__nv_bfloat16 *)R, outs, worst);
        else { differ<<<256, 256>>>((float *)C, (float *)R, outs, worst); exact<<<1024, 128>>>((float *)A, (float *)B, (float *)C, m, k, n, worst + 1); }
        unsigned w[2];
        CHECK(cudaMemcpy(w, worst, 8, cudaMemcpyDeviceToHost));
        r.err = *(float *)w;
        if (!half) printf("   %-34s against float64 %.1f ulp of 2^-24\n", r.name.c_str(), *(float *)(w + 1) * 16777216.0);
    }
    for (int turn = 0; turn < turns; turn++)
        for (auto &r : rows) {
            CHECK(cudaMemsetAsync(flush, turn, FLUSH));
            CHECK(cudaEventRecord(e0));
            r.run();
            CHECK(cudaEventRecord(e1));
            CHECK(cudaEventSynchronize(e1));
            float ms;
            CHECK(cudaEventElapsedTime(&ms, e0, e1));
            r.t.push_back(ms);
        }
    double first = 0;
    for (auto &r : rows) {
        std::sort(r.t.begin(), r.t.end());
        double us = r.t[r.t.size() / 2] * 1e3;
        if (!first) first = us;
        printf("%-34s %9.2f us %8.1f TFLOP/s  of the first %.3f  min %9.2f  differs %.2e%s\n", r.name.c_str(), us, 2.0 * m * n * k / us * 1e-6, first / us, r.t[0] * 1e3, r.err, r.err > 0.02 ? " WRONG" : "");
    }
    fflush(stdout);
    rows.clear();
    cudaEventDestroy(e0), cudaEventDestroy(e1);
}

#include "variants.h"

int main(int argc, char **argv)
{
    void *lib = nullptr;
    for (int i = 1; i < argc && !lib; i++) lib = dlopen(argv[i], RTLD_NOW);
    if (!lib) lib = dlopen("libcublas.so.13", RTLD_NOW);
    if (!lib) lib = dlopen("libcublas.so.12", RTLD_NOW);
    if (!lib) { printf("no cublas: %s\n", dlerror()); return 1; }
    cudaDriverEntryPointQueryResult found;
    CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", (void **)&encode, 12000, cudaEnableDefault, &found));
    size_t most = 4ull * 8192 * 8192;
    CHECK(cudaMalloc(&A, most)); CHECK(cudaMalloc(&B, most)); CHECK(cudaMalloc(&C, most)); CHECK(cudaMalloc(&R, most)); CHECK(cudaMalloc(&flush, FLUSH));
    CHECK(cudaMalloc(&worst, 8));
    ((int (*)(void **))dlsym(lib, "cublasCreate_v2"))(&handle);
    gemm = (decltype(gemm))dlsym(lib, "cublasGemmEx");
    variants();
    return 0;
}
