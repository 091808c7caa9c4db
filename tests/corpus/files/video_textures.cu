// Kernels as a filter of a video library has them: texture objects of bytes and of pairs, and a template by a macro.
// run: -k Shade_uchar -g 4,2 -b 16,16 --arg 'source=texture(uint8[32,64]:random)' --arg 'out=uint8[32,64]:empty'
//      --arg width=64 --arg height=32 --expect 'out=255-source'
// expect: ok
#include <stdint.h>

template <typename T> __device__ inline void shade(cudaTextureObject_t source, T *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = 255 - tex2D<T>(source, x, y);
}

extern "C" {
#define SHADE(T)                                                                                       \
    __global__ void Shade_##T(cudaTextureObject_t source, T *out, int width, int height)              \
    {                                                                                                  \
        shade<T>(source, out, width, height);                                                          \
    }
typedef unsigned char uchar;
typedef unsigned short ushort;
SHADE(uchar)
SHADE(ushort)

__global__ void Chroma(cudaTextureObject_t chroma, uchar2 *out, int width, int height)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[y * width + x] = tex2D<uchar2>(chroma, x, y);
}
}
