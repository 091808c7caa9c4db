// The parts of PyTorch's C++ headers that kernels use, for files that include them where PyTorch is not installed.
//
// A kernel of an extension needs packed accessors of tensors, 16-bit types, the types for accumulation, and macros in
// its declaration. The rest is for the host. Names, members and rounding are as in PyTorch's own headers: an operation
// on two 16-bit numbers is done in float and rounded once.
#ifndef CUDABENCH_TORCH_HEADERS
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
#define CUDA_KERNEL_LOOP_TYPE(i, n, index_type) \
    for (long long i##_cudabench_next = (long long)blockIdx.x * blockDim.x + threadIdx.x, i##_cudabench_step = \
             (long long)blockDim.x * gridDim.x, i##_cudabench_once = 1; i##_cudabench_once; i##_cudabench_once = 0) \
        for (index_type i = i##_cudabench_next; i##_cudabench_next < (n); \
             i##_cudabench_next += i##_cudabench_step, i = i##_cudabench_next)
#define CUDA_KERNEL_LOOP(i, n) CUDA_KERNEL_LOOP_TYPE(i, n, int)
#endif

namespace c10 {

#define CUDABENCH_TYPE(KIND, NATIVE, BITS, OF_BITS, NARROW, WIDE) \
    struct alignas(2) KIND { \
        unsigned short x; \
        struct from_bits_t {}; \
        __host__ __device__ static constexpr from_bits_t from_bits() { return from_bits_t(); } \
        KIND() = default; \
        __host__ __device__ constexpr KIND(unsigned short bits, from_bits_t) : x(bits) {} \
        __host__ __device__ inline KIND(float value) : x(BITS(NARROW(value))) {} \
        __host__ __device__ inline operator float() const { return WIDE(OF_BITS(x)); } \
        __host__ __device__ inline KIND(const NATIVE &value) : x(BITS(value)) {} \
        __host__ __device__ inline explicit operator NATIVE() const { return OF_BITS(x); } \
        __host__ __device__ inline KIND operator-() const { return KIND((unsigned short)(x ^ 0x8000), from_bits()); } \
    };
CUDABENCH_TYPE(Half, __half, __half_as_ushort, __ushort_as_half, __float2half_rn, __half2float)
CUDABENCH_TYPE(BFloat16, __nv_bfloat16, __bfloat16_as_ushort, __ushort_as_bfloat16, __float2bfloat16_rn,
               __bfloat162float)
#undef CUDABENCH_TYPE

#define CUDABENCH_WHOLE(KIND, SIGN, WHOLE) \
    __host__ __device__ inline KIND operator SIGN(KIND a, WHOLE b) { return a SIGN KIND(b); } \
    __host__ __device__ inline KIND operator SIGN(WHOLE a, KIND b) { return KIND(a) SIGN b; }
#define CUDABENCH_ARITHMETIC(KIND, SIGN) \
    __host__ __device__ inline KIND operator SIGN(KIND a, KIND b) { return (float)a SIGN (float)b; } \
    __host__ __device__ inline float operator SIGN(KIND a, float b) { return (float)a SIGN b; } \
    __host__ __device__ inline float operator SIGN(float a, KIND b) { return a SIGN (float)b; } \
    __host__ __device__ inline double operator SIGN(KIND a, double b) { return (double)(float)a SIGN b; } \
    __host__ __device__ inline double operator SIGN(double a, KIND b) { return a SIGN (double)(float)b; } \
    CUDABENCH_WHOLE(KIND, SIGN, int) \
    CUDABENCH_WHOLE(KIND, SIGN, long long) \
    CUDABENCH_WHOLE(KIND, SIGN, long)
#define CUDABENCH_ASSIGNMENT(KIND, ASSIGN, SIGN) \
    __host__ __device__ inline KIND &operator ASSIGN(KIND &a, KIND b) { return a = a SIGN b; } \
    __host__ __device__ inline float &operator ASSIGN(float &a, KIND b) { return a = a SIGN (float)b; }
#define CUDABENCH_COMPARISON(KIND, SIGN) \
    __host__ __device__ inline bool operator SIGN(KIND a, KIND b) { return (float)a SIGN (float)b; }
#define CUDABENCH_OPERATORS(KIND) \
    CUDABENCH_ARITHMETIC(KIND, +) \
    CUDABENCH_ASSIGNMENT(KIND, +=, +) \
    CUDABENCH_ARITHMETIC(KIND, -) \
    CUDABENCH_ASSIGNMENT(KIND, -=, -) \
    CUDABENCH_ARITHMETIC(KIND, *) \
    CUDABENCH_ASSIGNMENT(KIND, *=, *) \
    CUDABENCH_ARITHMETIC(KIND, /) \
    CUDABENCH_ASSIGNMENT(KIND, /=, /)
#define CUDABENCH_COMPARISONS(KIND) \
    CUDABENCH_COMPARISON(KIND, <) \
    CUDABENCH_COMPARISON(KIND, >) \
    CUDABENCH_COMPARISON(KIND, <=) \
    CUDABENCH_COMPARISON(KIND, >=) \
    CUDABENCH_COMPARISON(KIND, ==) \
    CUDABENCH_COMPARISON(KIND, !=)
CUDABENCH_OPERATORS(Half)
CUDABENCH_OPERATORS(BFloat16)
CUDABENCH_COMPARISONS(Half)
CUDABENCH_COMPARISONS(BFloat16)
#undef CUDABENCH_WHOLE
#undef CUDABENCH_ARITHMETIC
#undef CUDABENCH_ASSIGNMENT
#undef CUDABENCH_COMPARISON
#undef CUDABENCH_OPERATORS
#undef CUDABENCH_COMPARISONS

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

#define CUDABENCH_SHUFFLE(NAME, SHUFFLE, KIND) \
    template <typename T> \
    __device__ inline T NAME(T value, KIND by, int width = warpSize, unsigned mask = 0xffffffff) { \
        return SHUFFLE(mask, value, by, width); \
    }
CUDABENCH_SHUFFLE(WARP_SHFL, __shfl_sync, int)
CUDABENCH_SHUFFLE(WARP_SHFL_XOR, __shfl_xor_sync, int)
CUDABENCH_SHUFFLE(WARP_SHFL_UP, __shfl_up_sync, unsigned)
CUDABENCH_SHUFFLE(WARP_SHFL_DOWN, __shfl_down_sync, unsigned)
#undef CUDABENCH_SHUFFLE

__device__ __forceinline__ unsigned WARP_BALLOT(int predicate, unsigned mask = 0xffffffff) {
    return __ballot_sync(mask, predicate);
}
#endif
