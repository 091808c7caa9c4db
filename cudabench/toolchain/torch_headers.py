"""What kernels use of PyTorch's C++ headers, for files that include them where PyTorch is not installed.

A kernel of an extension needs little of them: a tensor's packed accessors, the 16-bit types, the type to compute in,
macros in a kernel's head. All else is for the host, which a kernel does not need. Names, members and rounding are those
of PyTorch's own headers: an operation on two 16-bit numbers is done in float and rounded once.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"(?:torch|ATen|c10)/.+\.(?:h|cuh|hpp)|THC/.+\.(?:h|cuh)|pybind11/.+\.h")

_ARITHMETIC = "".join(
    f"__host__ __device__ inline {kind} operator{sign}({kind} a, {kind} b) {{ return (float)a {sign} (float)b; }}\n"
    f"__host__ __device__ inline float operator{sign}({kind} a, float b) {{ return (float)a {sign} b; }}\n"
    f"__host__ __device__ inline float operator{sign}(float a, {kind} b) {{ return a {sign} (float)b; }}\n"
    f"__host__ __device__ inline double operator{sign}({kind} a, double b) {{ return (double)(float)a {sign} b; }}\n"
    f"__host__ __device__ inline double operator{sign}(double a, {kind} b) {{ return a {sign} (double)(float)b; }}\n"
    + "".join(
        f"__host__ __device__ inline {kind} operator{sign}({kind} a, {whole} b) {{ return a {sign} {kind}(b); }}\n"
        f"__host__ __device__ inline {kind} operator{sign}({whole} a, {kind} b) {{ return {kind}(a) {sign} b; }}\n"
        for whole in ("int", "long long", "long")
    )
    + f"__host__ __device__ inline {kind} &operator{sign}=({kind} &a, {kind} b) {{ return a = a {sign} b; }}\n"
    f"__host__ __device__ inline float &operator{sign}=(float &a, {kind} b) {{ return a = a {sign} (float)b; }}\n"
    for kind in ("Half", "BFloat16")
    for sign in "+-*/"
) + "".join(
    f"__host__ __device__ inline bool operator{sign}({kind} a, {kind} b) {{ return (float)a {sign} (float)b; }}\n"
    for kind in ("Half", "BFloat16")
    for sign in ("<", ">", "<=", ">=", "==", "!=")
)

_TYPE = """
struct alignas(2) KIND {
    unsigned short x;
    struct from_bits_t {};
    __host__ __device__ static constexpr from_bits_t from_bits() { return from_bits_t(); }
    KIND() = default;
    __host__ __device__ constexpr KIND(unsigned short bits, from_bits_t) : x(bits) {}
    __host__ __device__ inline KIND(float value) : x(BITS(NARROW(value))) {}
    __host__ __device__ inline operator float() const { return WIDE(OF_BITS(x)); }
    __host__ __device__ inline KIND(const NATIVE &value) : x(BITS(value)) {}
    __host__ __device__ inline explicit operator NATIVE() const { return OF_BITS(x); }
    __host__ __device__ inline KIND operator-() const { return KIND((unsigned short)(x ^ 0x8000), from_bits()); }
};
"""


def _type(kind: str, native: str, to_bits: str, of_bits: str, narrow: str, wide: str) -> str:
    words = {"KIND": kind, "NATIVE": native, "OF_BITS": of_bits, "BITS": to_bits, "NARROW": narrow, "WIDE": wide}
    return re.sub(r"\b(KIND|NATIVE|OF_BITS|BITS|NARROW|WIDE)\b", lambda match: words[match[0]], _TYPE)


_TEXT = (
    """#ifndef CUDABENCH_TORCH_HEADERS
#define CUDABENCH_TORCH_HEADERS
#include <cuda_fp16.h>
#include <cuda_bf16.h>

#ifndef C10_HOST_DEVICE
#define C10_HOST_DEVICE __host__ __device__
#define C10_DEVICE __device__
#define C10_HOST __host__
#define C10_ALWAYS_INLINE __forceinline__
#define C10_UNUSED
#define C10_WARP_SIZE 32
#define C10_LAUNCH_BOUNDS_0 __launch_bounds__(256, 4)
#define C10_LAUNCH_BOUNDS_1(threads) __launch_bounds__(threads)
#define C10_LAUNCH_BOUNDS_2(threads, blocks) __launch_bounds__(threads, blocks)
#define C10_RESTRICT __restrict__
#define CUDA_KERNEL_ASSERT(condition) assert(condition)
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type) \\
    for (long long i##_cudabench_next = (long long)blockIdx.x * blockDim.x + threadIdx.x, i##_cudabench_step = \\
             (long long)blockDim.x * gridDim.x, i##_cudabench_once = 1; i##_cudabench_once; i##_cudabench_once = 0) \\
        for (index_type i = i##_cudabench_next; i##_cudabench_next < (n); \\
             i##_cudabench_next += i##_cudabench_step, i = i##_cudabench_next)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#endif

namespace c10 {
"""
    + _type("Half", "__half", "__half_as_ushort", "__ushort_as_half", "__float2half_rn", "__half2float")
    + _type(
        "BFloat16",
        "__nv_bfloat16",
        "__bfloat16_as_ushort",
        "__ushort_as_bfloat16",
        "__float2bfloat16_rn",
        "__bfloat162float",
    )
    + _ARITHMETIC
    + """
}  // namespace c10

namespace at {
using c10::Half;
using c10::BFloat16;

template <typename T> struct RestrictPtrTraits { typedef T *__restrict__ PtrType; };
template <typename T> struct DefaultPtrTraits { typedef T *PtrType; };

template <typename T, size_t N, template <typename U> class Traits = DefaultPtrTraits, typename index_t = long long>
class TensorAccessor {
public:
    typedef typename Traits<T>::PtrType PtrType;
    __host__ __device__ TensorAccessor(PtrType data, const index_t *sizes, const index_t *strides)
        : data_(data), sizes_(sizes), strides_(strides) {}
    __host__ __device__ TensorAccessor<T, N - 1, Traits, index_t> operator[](index_t i) const {
        return TensorAccessor<T, N - 1, Traits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
    __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
    __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
    __host__ __device__ PtrType data() const { return data_; }
protected:
    PtrType data_;
    const index_t *sizes_;
    const index_t *strides_;
};
template <typename T, template <typename U> class Traits, typename index_t>
class TensorAccessor<T, 1, Traits, index_t> {
public:
    typedef typename Traits<T>::PtrType PtrType;
    __host__ __device__ TensorAccessor(PtrType data, const index_t *sizes, const index_t *strides)
        : data_(data), sizes_(sizes), strides_(strides) {}
    __host__ __device__ T &operator[](index_t i) const { return data_[strides_[0] * i]; }
    __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
    __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
    __host__ __device__ PtrType data() const { return data_; }
protected:
    PtrType data_;
    const index_t *sizes_;
    const index_t *strides_;
};

template <typename T, size_t N, template <typename U> class Traits = DefaultPtrTraits, typename index_t = long long>
class GenericPackedTensorAccessor {
public:
    typedef typename Traits<T>::PtrType PtrType;
    __host__ __device__ TensorAccessor<T, N - 1, Traits, index_t> operator[](index_t i) const {
        return TensorAccessor<T, N - 1, Traits, index_t>(data_ + strides_[0] * i, sizes_ + 1, strides_ + 1);
    }
    __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
    __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
    __host__ __device__ PtrType data() const { return data_; }
protected:
    PtrType data_;
    index_t sizes_[N];
    index_t strides_[N];
};
template <typename T, template <typename U> class Traits, typename index_t>
class GenericPackedTensorAccessor<T, 1, Traits, index_t> {
public:
    typedef typename Traits<T>::PtrType PtrType;
    __host__ __device__ T &operator[](index_t i) const { return data_[strides_[0] * i]; }
    __host__ __device__ index_t stride(index_t i) const { return strides_[i]; }
    __host__ __device__ index_t size(index_t i) const { return sizes_[i]; }
    __host__ __device__ PtrType data() const { return data_; }
protected:
    PtrType data_;
    index_t sizes_[1];
    index_t strides_[1];
};
template <typename T, size_t N, template <typename U> class Traits = DefaultPtrTraits, typename index_t = long long>
using PackedTensorAccessor = GenericPackedTensorAccessor<T, N, Traits, index_t>;
template <typename T, size_t N, template <typename U> class Traits = DefaultPtrTraits>
using PackedTensorAccessor32 = GenericPackedTensorAccessor<T, N, Traits, int>;
template <typename T, size_t N, template <typename U> class Traits = DefaultPtrTraits>
using PackedTensorAccessor64 = GenericPackedTensorAccessor<T, N, Traits, long long>;

template <typename T> struct OpMathType { using type = T; };
template <> struct OpMathType<Half> { using type = float; };
template <> struct OpMathType<BFloat16> { using type = float; };
template <typename T> using opmath_type = typename OpMathType<T>::type;
template <typename T, bool is_cuda> struct AccumulateType { using type = typename OpMathType<T>::type; };
template <typename T, bool is_cuda> using acc_type = typename AccumulateType<T, is_cuda>::type;
template <typename T> using acc_type_device = acc_type<T, true>;
template <typename T> __host__ __device__ inline T ceil_div(T a, T b) { return (a + b - 1) / b; }

namespace native {
template <typename T> __device__ inline void gpuAtomicAddNoReturn(T *address, T value) { atomicAdd(address, value); }
}  // namespace native
}  // namespace at

namespace torch {
using namespace at;
}
namespace c10 {
using at::ceil_div;
}

template <typename T> __device__ inline T gpuAtomicAdd(T *address, T value) { return atomicAdd(address, value); }
__device__ inline c10::Half gpuAtomicAdd(c10::Half *address, c10::Half value) {
    return c10::Half(atomicAdd(reinterpret_cast<__half *>(address), (__half)value));
}
__device__ inline c10::BFloat16 gpuAtomicAdd(c10::BFloat16 *address, c10::BFloat16 value) {
    return c10::BFloat16(atomicAdd(reinterpret_cast<__nv_bfloat16 *>(address), (__nv_bfloat16)value));
}
template <typename T> __device__ inline void gpuAtomicAddNoReturn(T *address, T value) { gpuAtomicAdd(address, value); }
"""
    + "".join(
        f"template <typename T>\n__device__ inline T WARP_SHFL{name.upper()}(T value, {kind} by, int width = warpSize, "
        f"unsigned mask = 0xffffffff) {{\n    return __shfl{name}_sync(mask, value, by, width);\n}}\n"
        for name, kind in (("", "int"), ("_xor", "int"), ("_up", "unsigned"), ("_down", "unsigned"))
    )
    + """
__device__ __forceinline__ unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) {
    return __ballot_sync(mask, predicate);
}
#endif
"""
)


def text(header: str) -> str:
    """Return what stands for a header that is nowhere: that of PyTorch's that a kernel can use, else nothing."""
    return _TEXT if _NAME.fullmatch(header) else ""
