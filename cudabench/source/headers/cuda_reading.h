// The names that declarations in a CUDA source may use without an #include: attributes, CUDA's vectors and other types
// with their layouts (CUDA C++ programming guide, built-in vector types), integer types of the C library, and thread
// indices. CUDA's functions are left out, because only declarations are parsed, not functions' bodies.
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __managed__ __attribute__((device))
#define __restrict__ __restrict
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(n) __attribute__((aligned(n)))
#define __builtin_align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __cluster_dims__(...)
#define __block_size__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __declspec(...)
#define __pragma(...)
#define __CUDACC__ 1
#define __NVCC__ 1
#define __CUDA_ARCH__ 900
#define __CUDACC_VER_MAJOR__ 13
#define __CUDACC_VER_MINOR__ 0
#define CUDART_VERSION 13000
#define CUDA_VERSION 13000

typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef long ssize_t;
typedef long intptr_t;
typedef unsigned long uintptr_t;
typedef long intmax_t;
typedef unsigned long uintmax_t;
typedef long clock_t;
typedef long time_t;
typedef long off_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef unsigned char u_char;
typedef unsigned short u_short;
typedef unsigned int u_int;
typedef unsigned long u_long;
typedef unsigned char u_int8_t;
typedef unsigned short u_int16_t;
typedef unsigned int u_int32_t;
typedef unsigned long u_int64_t;
namespace std {
using ::size_t; using ::ptrdiff_t; using ::intptr_t; using ::uintptr_t; using ::intmax_t; using ::uintmax_t;
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
}

#define CUDABENCH_VECTOR(base, name)                                                              \
    struct name##1 { base x; };                                                                   \
    struct __attribute__((aligned(2 * sizeof(base)))) name##2 { base x, y; };                     \
    struct name##3 { base x, y, z; };                                                             \
    struct __attribute__((aligned(sizeof(base) > 4 ? 16 : 4 * sizeof(base)))) name##4 { base x, y, z, w; };
CUDABENCH_VECTOR(signed char, char)
CUDABENCH_VECTOR(unsigned char, uchar)
CUDABENCH_VECTOR(short, short)
CUDABENCH_VECTOR(unsigned short, ushort)
CUDABENCH_VECTOR(int, int)
CUDABENCH_VECTOR(unsigned int, uint)
CUDABENCH_VECTOR(long, long)
CUDABENCH_VECTOR(unsigned long, ulong)
CUDABENCH_VECTOR(long long, longlong)
CUDABENCH_VECTOR(unsigned long long, ulonglong)
CUDABENCH_VECTOR(float, float)
CUDABENCH_VECTOR(double, double)
#undef CUDABENCH_VECTOR

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int x = 1, unsigned int y = 1, unsigned int z = 1) : x(x), y(y), z(z) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};
struct cudaPitchedPtr { void *ptr; size_t pitch; size_t xsize; size_t ysize; };
struct cudaExtent { size_t width; size_t height; size_t depth; };
struct cudaPos { size_t x; size_t y; size_t z; };
typedef unsigned long long cudaTextureObject_t;
typedef unsigned long long cudaSurfaceObject_t;
typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
int cudaConfigureCall(dim3, dim3, size_t = 0, cudaStream_t = 0);
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t = 0, cudaStream_t = 0);

extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;
extern const int warpSize;

// Texture and surface references, which CUDA 12 removed from the language.
#define cudaTextureType1D 1
#define cudaTextureType2D 2
#define cudaTextureType3D 3
#define cudaTextureTypeCubemap 12
#define cudaTextureType1DLayered 241
#define cudaTextureType2DLayered 242
#define cudaSurfaceType1D 1
#define cudaSurfaceType2D 2
#define cudaSurfaceType3D 3
enum cudaTextureReadMode { cudaReadModeElementType, cudaReadModeNormalizedFloat };
template <class T, int type = cudaTextureType1D, cudaTextureReadMode mode = cudaReadModeElementType> struct texture;
template <class T, int type = 1> struct surface;

// Serves to ask the parser for layouts: to compute a type's size, the parser instantiates the type's class templates.
template <class T, class = void> struct cudabench_size { static constexpr size_t value = 0; };
template <class T> struct cudabench_size<T, decltype(void(sizeof(T)))> { static constexpr size_t value = sizeof(T); };
template <class T> struct cudabench_size<T *, void> { static constexpr size_t value = cudabench_size<T>::value; };
template <class R, class... A> struct cudabench_size<R (*)(A...), void> {
    static constexpr size_t value = (cudabench_size<A>::value + ... + size_t(0));
};
