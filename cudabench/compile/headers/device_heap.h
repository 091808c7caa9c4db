// cudaMalloc and cudaFree for kernels. Like the real functions, they use the heap of malloc. They are macros, so that
// line information gives the user's line for the call of malloc.
template <typename T>
static __host__ __device__ __forceinline__ cudaError_t cudabench_given(T **memory, void *given) {
    *memory = static_cast<T *>(given);
    return given == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}
static __host__ __device__ __forceinline__ cudaError_t cudabench_freed(int) { return cudaSuccess; }
#define cudaMalloc(memory, ...) cudabench_given(memory, malloc(__VA_ARGS__))
#define cudaFree(...) cudabench_freed((free(__VA_ARGS__), 0))
