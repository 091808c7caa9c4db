#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#include "checks.cuh"

__device__ int counter;
__managed__ int man[4] = {3, 4, 5, 6};
__constant__ float coef[4];
__global__ void add(int *p, int n, int v) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        p[i] += v;
}
__global__ void count() {
    if (threadIdx.x == 0)
        atomicAdd(&counter, 1);
}
__global__ void useconst(float *o) { o[threadIdx.x] = coef[threadIdx.x & 3]; }
__global__ void usemanaged(int *p) {
    p[threadIdx.x] = man[threadIdx.x] * 2;
    man[threadIdx.x] += 10;
}
__global__ void rows(float *p, size_t pitch, int w, int h) {
    int x = threadIdx.x, y = blockIdx.x;
    if (x < w && y < h)
        *(float *)((char *)p + y * pitch + x * 4) = x + 100 * y;
}
__global__ void dyn(int *o) {
    extern __shared__ int s[];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    o[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
__global__ void tex(cudaTextureObject_t t, float *o, int w) {
    o[threadIdx.y * w + threadIdx.x] = tex2D<float>(t, threadIdx.x + 0.5f, threadIdx.y + 0.5f);
}
__global__ void tex1(cudaTextureObject_t t, float *o) { o[threadIdx.x] = tex1Dfetch<float>(t, threadIdx.x); }
__global__ void surf(cudaSurfaceObject_t s) {
    surf2Dwrite(float(threadIdx.x * 10 + threadIdx.y), s, threadIdx.x * 4, threadIdx.y);
}
__global__ void say(int n) { printf("hello from %d\n", n); }
static void hostfn(void *d) { (*(int *)d)++; }
static void CUDART_CB cb(cudaStream_t, cudaError_t e, void *d) { *(int *)d += 10 + e; }
int main() {
    int n = 0;
    C(cudaGetDeviceCount(&n));
    T(n >= 1);
    int dev = -1;
    C(cudaGetDevice(&dev));
    T(dev == 0);
    C(cudaSetDevice(0));
    WANT(cudaSetDevice(77), cudaErrorInvalidDevice);
    cudaDeviceProp prop;
    memset(&prop, 0x5a, sizeof prop);
    C(cudaGetDeviceProperties(&prop, 0));
    int v;
    C(cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, 0));
    T(v == prop.multiProcessorCount);
    C(cudaDeviceGetAttribute(&v, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    T((size_t)v == prop.sharedMemPerBlockOptin);
    T(prop.warpSize == 32);
    T(prop.maxThreadsPerBlock == 1024);
    T(prop.maxGridSize[0] == 2147483647);
    printf("%s sm %d.%d, %d SMs, %zu MB, L2 %d, shared %zu/%zu, regs %d, bus %d, blocks %d, coop %d\n", prop.name,
           prop.major, prop.minor, prop.multiProcessorCount, prop.totalGlobalMem >> 20, prop.l2CacheSize,
           prop.sharedMemPerBlock, prop.sharedMemPerMultiprocessor, prop.regsPerMultiprocessor, prop.memoryBusWidth,
           prop.maxBlocksPerMultiProcessor, prop.cooperativeLaunch);
    int *d, *h = (int *)malloc(4000);
    for (int i = 0; i < 1000; i++)
        h[i] = i;
    C(cudaMalloc(&d, 4000));
    C(cudaMemcpy(d, h, 4000, cudaMemcpyHostToDevice));
    add<<<4, 256>>>(d, 1000, 5);
    C(cudaGetLastError());
    C(cudaDeviceSynchronize());
    int *r = (int *)malloc(4000);
    C(cudaMemcpy(r, d, 4000, cudaMemcpyDefault));
    for (int i = 0; i < 1000; i++)
        T(r[i] == i + 5);
    int *locked;
    C(cudaMallocHost(&locked, 4000));
    C(cudaMemcpy(locked, d, 4000, cudaMemcpyDeviceToHost)); // waits, as for any memory of the host
    T(locked[0] == 5 && locked[999] == 1004);
    C(cudaFreeHost(locked));
    // launch errors
    add<<<1, 2048>>>(d, 1000, 5);
    WANT(cudaGetLastError(), cudaErrorInvalidValue);
    T(cudaGetLastError() == cudaSuccess);
    add<<<0, 32>>>(d, 1000, 5);
    WANT(cudaPeekAtLastError(), cudaErrorInvalidValue);
    cudaGetLastError();
    add<<<1, 32, 1 << 20>>>(d, 1000, 5);
    WANT(cudaGetLastError(), cudaErrorInvalidValue);
    // streams and events
    cudaStream_t s1, s2;
    cudaEvent_t a, b;
    C(cudaStreamCreate(&s1));
    C(cudaStreamCreateWithFlags(&s2, cudaStreamNonBlocking));
    C(cudaEventCreate(&a));
    C(cudaEventCreateWithFlags(&b, cudaEventDefault));
    int *pin;
    C(cudaMallocHost(&pin, 4000));
    for (int i = 0; i < 1000; i++)
        pin[i] = 1000 - i;
    C(cudaEventRecord(a, s1));
    C(cudaMemcpyAsync(d, pin, 4000, cudaMemcpyHostToDevice, s1));
    add<<<4, 256, 0, s1>>>(d, 1000, 1);
    C(cudaEventRecord(b, s1));
    C(cudaStreamWaitEvent(s2, b, 0));
    add<<<4, 256, 0, s2>>>(d, 1000, 1);
    C(cudaMemcpyAsync(pin, d, 4000, cudaMemcpyDeviceToHost, s2));
    C(cudaStreamSynchronize(s2));
    for (int i = 0; i < 1000; i++)
        T(pin[i] == 1002 - i);
    float ms = -1;
    C(cudaEventSynchronize(b));
    C(cudaEventElapsedTime(&ms, a, b));
    T(ms > 0);
    C(cudaStreamQuery(s1));
    C(cudaEventQuery(b));
    int calls = 0;
    C(cudaLaunchHostFunc(s1, hostfn, &calls));
    C(cudaStreamAddCallback(s1, cb, &calls, 0));
    C(cudaStreamSynchronize(s1));
    T(calls == 11);
    // symbols
    count<<<3, 32>>>();
    int c;
    C(cudaMemcpyFromSymbol(&c, counter, 4));
    T(c == 3);
    c = 40;
    C(cudaMemcpyToSymbol(counter, &c, 4));
    count<<<2, 32>>>();
    C(cudaMemcpyFromSymbol(&c, counter, sizeof c));
    T(c == 42);
    float cf[4] = {1, 2, 3, 4};
    C(cudaMemcpyToSymbol(coef, cf, sizeof cf));
    float *df;
    C(cudaMalloc((void **)&df, 4096));
    useconst<<<1, 32>>>(df);
    float hf[1024];
    C(cudaMemcpy(hf, df, 128, cudaMemcpyDeviceToHost));
    T(hf[5] == 2);
    void *sa;
    size_t ss;
    C(cudaGetSymbolAddress(&sa, counter));
    C(cudaGetSymbolSize(&ss, coef));
    T(ss == 16);
    C(cudaMemcpy(&c, sa, 4, cudaMemcpyDeviceToHost));
    T(c == 42);
    // managed
    T(man[2] == 5);
    man[1] = 100;
    usemanaged<<<1, 4>>>(d);
    C(cudaDeviceSynchronize());
    T(man[0] == 13 && man[1] == 110);
    C(cudaMemcpy(r, d, 16, cudaMemcpyDeviceToHost));
    T(r[1] == 200);
    int *m;
    C(cudaMallocManaged(&m, 4000));
    for (int i = 0; i < 1000; i++)
        m[i] = i;
    add<<<4, 256>>>(m, 1000, 7);
    C(cudaDeviceSynchronize());
    for (int i = 0; i < 1000; i++)
        T(m[i] == i + 7);
    cudaMemLocation loc{cudaMemLocationTypeDevice, 0};
    C(cudaMemPrefetchAsync(m, 4000, loc, 0, 0));
    C(cudaMemAdvise(m, 4000, cudaMemAdviseSetReadMostly, loc));
    C(cudaFree(m));
    // mapped, registered
    int *hm, *hd;
    C(cudaHostAlloc(&hm, 4000, cudaHostAllocMapped));
    memset(hm, 0, 4000);
    C(cudaHostGetDevicePointer(&hd, hm, 0));
    add<<<4, 256>>>(hd, 1000, 3);
    C(cudaDeviceSynchronize());
    T(hm[999] == 3);
    C(cudaHostRegister(h, 4000, cudaHostRegisterMapped));
    C(cudaHostGetDevicePointer(&hd, h, 0));
    add<<<4, 256>>>(hd, 1000, 3);
    C(cudaDeviceSynchronize());
    T(h[999] == 1002);
    WANT(cudaHostRegister(h, 400, 0), cudaErrorHostMemoryAlreadyRegistered);
    C(cudaHostUnregister(h));
    C(cudaFreeHost(hm));
    cudaPointerAttributes pa;
    C(cudaPointerGetAttributes(&pa, d));
    T(pa.type == cudaMemoryTypeDevice && pa.device == 0 && pa.devicePointer == d);
    C(cudaPointerGetAttributes(&pa, pin));
    T(pa.type == cudaMemoryTypeHost && pa.hostPointer == pin);
    C(cudaPointerGetAttributes(&pa, r));
    T(pa.type == cudaMemoryTypeUnregistered);
    // pitched, 3D
    float *p;
    size_t pitch;
    C(cudaMallocPitch(&p, &pitch, 100 * 4, 20));
    T(pitch >= 400 && pitch % 256 == 0);
    rows<<<20, 128>>>(p, pitch, 100, 20);
    static float hp[20][100];
    C(cudaMemcpy2D(hp, 400, p, pitch, 400, 20, cudaMemcpyDeviceToHost));
    T(hp[7][50] == 750);
    C(cudaMemset2D(p, pitch, 0, 400, 20));
    C(cudaMemcpy2D(hp, 400, p, pitch, 400, 20, cudaMemcpyDeviceToHost));
    T(hp[7][50] == 0);
    WANT(cudaMemcpy2D(hp, 100, p, pitch, 400, 20, cudaMemcpyDeviceToHost), cudaErrorInvalidPitchValue);
    cudaPitchedPtr pp;
    cudaExtent ex = make_cudaExtent(40 * 4, 5, 3);
    C(cudaMalloc3D(&pp, ex));
    C(cudaMemset3D(pp, 1, ex));
    static int vol[3][5][40];
    cudaMemcpy3DParms p3{};
    p3.srcPtr = pp;
    p3.dstPtr = make_cudaPitchedPtr(vol, 160, 40, 5);
    p3.extent = ex;
    p3.kind = cudaMemcpyDeviceToHost;
    C(cudaMemcpy3D(&p3));
    T(vol[2][4][39] == 0x01010101);
    int *host_volume; // page-locked: the copy is done when the call returns
    C(cudaMallocHost(&host_volume, 3 * 5 * 40 * 4));
    host_volume[599] = 0;
    p3.dstPtr = make_cudaPitchedPtr(host_volume, 160, 40, 5);
    C(cudaMemcpy3D(&p3));
    T(host_volume[599] == 0x01010101);
    C(cudaFreeHost(host_volume));
    // arrays, textures, surfaces
    cudaChannelFormatDesc cd = cudaCreateChannelDesc<float>();
    cudaArray_t ar;
    C(cudaMallocArray(&ar, &cd, 16, 8, cudaArraySurfaceLoadStore));
    static float img[8][16];
    for (int y = 0; y < 8; y++)
        for (int x = 0; x < 16; x++)
            img[y][x] = y * 16 + x;
    C(cudaMemcpy2DToArray(ar, 0, 0, img, 64, 64, 8, cudaMemcpyHostToDevice));
    cudaResourceDesc rd{};
    rd.resType = cudaResourceTypeArray;
    rd.res.array.array = ar;
    cudaTextureDesc td{};
    td.addressMode[0] = td.addressMode[1] = cudaAddressModeClamp;
    td.filterMode = cudaFilterModePoint;
    td.readMode = cudaReadModeElementType;
    cudaTextureObject_t to;
    C(cudaCreateTextureObject(&to, &rd, &td, 0));
    tex<<<1, dim3(16, 8)>>>(to, df, 16);
    C(cudaMemcpy(hf, df, 512, cudaMemcpyDeviceToHost));
    T(hf[37] == 37);
    C(cudaDestroyTextureObject(to));
    cudaSurfaceObject_t so;
    C(cudaCreateSurfaceObject(&so, &rd));
    surf<<<1, dim3(16, 8)>>>(so);
    C(cudaMemcpy2DFromArray(img, 64, ar, 0, 0, 64, 8, cudaMemcpyDeviceToHost));
    T(img[3][7] == 73);
    float *host_plane;
    C(cudaMallocHost(&host_plane, 512));
    host_plane[55] = 0;
    C(cudaMemcpy2DFromArray(host_plane, 64, ar, 0, 0, 64, 8, cudaMemcpyDeviceToHost));
    T(host_plane[55] == 73);
    C(cudaFreeHost(host_plane));
    C(cudaDestroySurfaceObject(so));
    cudaChannelFormatDesc gd;
    cudaExtent ge;
    unsigned gf;
    C(cudaArrayGetInfo(&gd, &ge, &gf, ar));
    T(gd.x == 32 && gd.f == cudaChannelFormatKindFloat && ge.width == 16 && ge.height == 8);
    C(cudaFreeArray(ar));
    rd = {};
    rd.resType = cudaResourceTypeLinear;
    rd.res.linear.devPtr = df;
    rd.res.linear.desc = cd;
    rd.res.linear.sizeInBytes = 512;
    C(cudaCreateTextureObject(&to, &rd, &td, 0));
    float *df2;
    C(cudaMalloc(&df2, 512));
    tex1<<<1, 128>>>(to, df2);
    C(cudaMemcpy(hf + 256, df2, 512, cudaMemcpyDeviceToHost));
    T(hf[256 + 77] == hf[77]);
    C(cudaDestroyTextureObject(to));
    float *rows;
    size_t apart;
    C(cudaMallocPitch(&rows, &apart, 64, 8)); // with room behind each row
    C(cudaMemcpy2D(rows, apart, img, 64, 64, 8, cudaMemcpyHostToDevice));
    rd = {};
    rd.resType = cudaResourceTypePitch2D;
    rd.res.pitch2D = {rows, cd, 16, 8, apart};
    C(cudaCreateTextureObject(&to, &rd, &td, 0));
    tex<<<1, dim3(16, 8)>>>(to, df, 16);
    C(cudaMemcpy(hf, df, 512, cudaMemcpyDeviceToHost));
    T(hf[3 * 16 + 7] == 73 && hf[127] == img[7][15]);
    C(cudaDestroyTextureObject(to));
    rd.res.pitch2D.pitchInBytes = apart + 4;
    WANT(cudaCreateTextureObject(&to, &rd, &td, 0), cudaErrorInvalidValue);
    C(cudaFree(rows));
    // functions and occupancy
    cudaFuncAttributes fa;
    C(cudaFuncGetAttributes(&fa, dyn));
    T(fa.maxThreadsPerBlock == 1024 && fa.numRegs > 0);
    C(cudaFuncSetAttribute(dyn, cudaFuncAttributeMaxDynamicSharedMemorySize, 96 << 10));
    dyn<<<1, 256, 96 << 10>>>(d);
    C(cudaGetLastError());
    C(cudaMemcpy(r, d, 1024, cudaMemcpyDeviceToHost));
    T(r[0] == 255);
    int blocks, best, grid;
    C(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, add, 256, 0));
    T(blocks == 8);
    C(cudaOccupancyMaxPotentialBlockSize(&grid, &best, add, 0, 0));
    T(best == 1024);
    void *args[] = {&d, &n, &v};
    n = 1000;
    v = 1;
    C(cudaLaunchKernel((void *)add, dim3(4), dim3(256), args, 0, 0));
    C(cudaLaunchCooperativeKernel((void *)add, dim3(4), dim3(256), args, 0, 0));
    cudaLaunchConfig_t lc{};
    lc.gridDim = 4;
    lc.blockDim = 256;
    C(cudaLaunchKernelEx(&lc, add, d, 1000, 5));
    C(cudaDeviceSynchronize());
    // async memory
    int *as;
    C(cudaMallocAsync(&as, 4000, s1));
    C(cudaMemsetAsync(as, 0, 4000, s1));
    add<<<4, 256, 0, s1>>>(as, 1000, 9);
    C(cudaMemcpyAsync(r, as, 4000, cudaMemcpyDeviceToHost, s1));
    C(cudaFreeAsync(as, s1));
    C(cudaStreamSynchronize(s1));
    T(r[999] == 9);
    cudaMemPool_t pool;
    C(cudaDeviceGetDefaultMemPool(&pool, 0));
    unsigned long long th = ~0ull;
    C(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &th));
    // graph
    cudaGraph_t g;
    cudaGraphExec_t ge2;
    C(cudaMemset(d, 0, 4000));
    C(cudaStreamBeginCapture(s1, cudaStreamCaptureModeGlobal));
    add<<<4, 256, 0, s1>>>(d, 1000, 1);
    add<<<4, 256, 0, s1>>>(d, 1000, 2);
    C(cudaStreamEndCapture(s1, &g));
    C(cudaGraphInstantiate(&ge2, g, 0));
    for (int i = 0; i < 3; i++)
        C(cudaGraphLaunch(ge2, s1));
    C(cudaStreamSynchronize(s1));
    C(cudaMemcpy(r, d, 4000, cudaMemcpyDeviceToHost));
    T(r[500] == 9);
    C(cudaGraphExecDestroy(ge2));
    C(cudaGraphDestroy(g));
    // errors
    WANT(cudaMalloc(&m, size_t(1) << 45), cudaErrorMemoryAllocation);
    WANT(cudaMalloc(0, 4), cudaErrorInvalidValue);
    C(cudaFree(0));
    T(!strcmp(cudaGetErrorString(cudaErrorIllegalAddress), "an illegal memory access was encountered"));
    T(!strcmp(cudaGetErrorName(cudaErrorInvalidValue), "cudaErrorInvalidValue"));
    WANT(cudaFuncGetAttributes(&fa, (void *)main), cudaErrorInvalidResourceHandle);
    WANT(cudaMemcpyToSymbol(r, h, 4), cudaErrorInvalidSymbol);
    size_t fr, tot;
    C(cudaMemGetInfo(&fr, &tot));
    T(fr < tot && tot == prop.totalGlobalMem);
    size_t lim;
    C(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 64 << 20));
    C(cudaDeviceGetLimit(&lim, cudaLimitMallocHeapSize));
    T(lim == 64 << 20);
    say<<<2, 1>>>(7);
    C(cudaDeviceSynchronize());
    cudaStreamDestroy(s1);
    cudaStreamDestroy(s2);
    cudaEventDestroy(a);
    cudaEventDestroy(b);
    cudaFree(d);
    cudaFree(df);
    cudaFree(df2);
    cudaFreeHost(pin);
    cudaFree(p);
    cudaFree(pp.ptr);
    printf(failed ? "FAILED %d\n" : "PASSED\n", failed);
    return failed != 0;
}
