// Kernels that read and write surfaces: one, two and three dimensions, layers, types of 1 to 16 bytes, textures of them.
#include <cuda_fp16.h>

__global__ void line(cudaSurfaceObject_t s, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x < w) surf1Dwrite(2 * surf1Dread<float>(s, x * 4) + 1, s, x * 4);
}

__global__ void halves(cudaSurfaceObject_t s, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x >= w) return;
  __half v = __ushort_as_half(surf1Dread<unsigned short>(s, 2 * x));
  surf1Dwrite(__half_as_ushort(__hadd(v, v)), s, 2 * x);
}

__global__ void fill(cudaSurfaceObject_t s, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) surf2Dwrite((float)(y * w + x), s, x * sizeof(float), y);
}

__global__ void invert(cudaSurfaceObject_t img, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  uchar4 p = surf2Dread<uchar4>(img, x * 4, y);
  surf2Dwrite(make_uchar4(255 - p.x, 255 - p.y, 255 - p.z, p.w), img, x * 4, y);
}

// Reads three texels, of which those beyond the edges by the mode, and writes another surface.
__global__ void edges(cudaSurfaceObject_t s, cudaSurfaceObject_t o, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  int left = surf2Dread<int>(s, 4 * x - 4, y, cudaBoundaryModeClamp);
  int above = surf2Dread<int>(s, 4 * x, y - 1, cudaBoundaryModeZero);
  int here;
  surf2Dread(&here, s, 4 * x, y);
  surf2Dwrite(here + 3 * left + 1000 * above, o, 4 * x, y);
  surf2Dwrite(-1, o, 4 * x + 4 * w, y, cudaBoundaryModeZero);
}

__global__ void volume(cudaSurfaceObject_t v, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y, z = blockIdx.z;
  if (x < w && y < h) surf3Dwrite((short)(surf3Dread<short>(v, x * 2, y, z) + z), v, x * 2, y, z);
}

__global__ void sheets(cudaSurfaceObject_t l, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float4 v = surf2DLayeredread<float4>(l, x * 16, y, 0);
  surf2DLayeredwrite(make_float4(v.w, v.z, v.y, v.x + 1), l, x * 16, y, 2);
}

__global__ void lines(cudaSurfaceObject_t l, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x < w) surf1DLayeredwrite(surf1DLayeredread<uint2>(l, x * 8, blockIdx.y), l, x * 8, blockIdx.y + gridDim.y);
}

__global__ void shifted(cudaTextureObject_t t, float *o, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) o[y * w + x] = tex2D<float>(t, x + 1.5f, y + 0.5f);
}

__global__ void blended(cudaTextureObject_t t, cudaSurfaceObject_t o, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) surf2Dwrite(tex2D<float>(t, x + 1.f, y + 0.5f), o, x * 4, y);
}

__global__ void blur(cudaSurfaceObject_t a, cudaSurfaceObject_t b, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= w || y >= h) return;
  float l = surf2Dread<float>(a, 4 * x - 4, y, cudaBoundaryModeClamp);
  float r = surf2Dread<float>(a, 4 * x + 4, y, cudaBoundaryModeClamp);
  surf2Dwrite(0.5f * (l + r), b, 4 * x, y);
}

__global__ void beyond(cudaSurfaceObject_t s) { surf1Dwrite(1.f, s, 4 * threadIdx.x); }

__global__ void sum(cudaSurfaceObject_t s, float *total, int n) {
  int i = threadIdx.x;
  if (i < n) atomicAdd(total, surf1Dread<float>(s, i * 4));
}

__global__ void magnitude(cudaSurfaceObject_t s, int w) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x < w) surf1Dwrite(fabsf(surf1Dread<float>(s, x * 4)), s, x * 4);
}

template <typename T> __device__ void put(cudaSurfaceObject_t q, int x, int y, T v) {
  surf2Dwrite<T>(v, q, x * (int)sizeof(T), y);
}

__global__ void handed(cudaSurfaceObject_t dst, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) put<ushort2>(dst, x, y, make_ushort2(x, y));
}

template <typename T> __global__ void constant(cudaSurfaceObject_t s, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (x < n) surf1Dwrite<T>(7, s, sizeof(T) * x);
}

__global__ void sevens(cudaSurfaceObject_t s, int n) {
  int x = blockIdx.x * blockDim.x + threadIdx.x;
  if (n > x) surf1Dwrite(7, s, 4 * x);
}

// One channel of a texel: an element that is smaller than what it belongs to.
__global__ void channel(cudaSurfaceObject_t s, int w, int h) {
  int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < w && y < h) surf2Dwrite(2 * surf2Dread<float>(s, 16 * x + 4, y), s, x * 16 + 4, y);
}
