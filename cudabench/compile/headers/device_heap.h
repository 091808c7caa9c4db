// cuda_device_runtime_api.h's functions for memory in kernels: they use malloc's heap, as the real functions do. They
// are macros, so that the call of malloc is on the user's line.
template <typename T>
static __host__ __device__ __forceinline__ cudaError_t cudabench_given(T **memory, void *given) {
    *memory = static_cast<T *>(given);
    return given == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
static __host__ __device__ __forceinline__ cudaError_t cudabench_freed(int) { return cudaSuccess; }
#define cudaMalloc(memory, ...) cudabench_given(memory, malloc(__VA_ARGS__))
#define cudaFree(...) cudabench_freed((free(__VA_ARGS__), 0))
