// The calls of CUB for the operations. cudabench compiles this file with nvcc to a small library; OPERATION_... and the
// types of elements, sums and results are defined on the command line. A call without `scratch` only sets `bytes`.
#include <cub/device/device_reduce.cuh>
#include <cub/device/device_transform.cuh>
#include <cuda/std/tuple>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>
#include <thrust/iterator/zip_iterator.h>

typedef ELEMENT T;
typedef SUM S;
typedef RESULT OUT;

extern "C" int cub_version() { return CUB_VERSION; }

struct Add {
    __host__ __device__ S operator()(S a, S b) const { return a + b; }
};

#ifdef OPERATION_distance
struct SquaredDifference {
    __host__ __device__ S operator()(const thrust::tuple<T, T> &pair) const
    {
        S difference = (S)thrust::get<0>(pair) - (S)thrust::get<1>(pair);
        return difference * difference;
    }
};

struct Root {
    __host__ __device__ OUT operator()(S sum) const { return sqrt((OUT)sum); }
};

extern "C" int call(void *scratch, size_t *bytes, const T *a, const T *b, OUT *out, long long n, cudaStream_t stream)
{
    auto squares = thrust::make_transform_iterator(thrust::make_zip_iterator(thrust::make_tuple(a, b)),
                                                   SquaredDifference());
    auto root = thrust::make_transform_output_iterator(out, Root());
    return cub::DeviceReduce::Reduce(scratch, *bytes, squares, root, n, Add(), S(0), stream);
}
#endif

#ifdef OPERATION_pi
struct Term {
    T h;
    __host__ __device__ S operator()(int i) const
    {
        T x = ((T)i + (T)0.5) * h;
        return (T)4 / ((T)1 + x * x);
    }
};

struct Scale {
    double h;
    __host__ __device__ T operator()(S sum) const { return (T)(sum * h); }
};

extern "C" int call(void *scratch, size_t *bytes, const void *, const void *, T *out, long long n, cudaStream_t stream)
{
    auto terms = thrust::make_transform_iterator(thrust::make_counting_iterator(0), Term{(T)(1.0 / n)});
    auto scaled = thrust::make_transform_output_iterator(out, Scale{1.0 / n});
    return cub::DeviceReduce::Reduce(scratch, *bytes, terms, scaled, n, Add(), S(0), stream);
}
#endif

#ifdef OPERATION_vecadd
extern "C" int call(void *scratch, size_t *bytes, const T *a, const T *b, T *out, long long n, cudaStream_t stream)
{
    *bytes = 1;
    return scratch ? cub::DeviceTransform::Transform(cuda::std::make_tuple(a, b), out, n, Add(), stream) : 0;
}
#endif
