// Asynchronous copies from device to shared memory that do not pass through registers (compute capability 8.0). On
// older GPUs these functions copy through registers, and the copy is done when they return.

// Copies BYTES (4, 8 or 16) bytes; writes zeros if !inside. PAST_L1: bypasses the L1 cache, which would keep the data.
template <int BYTES, bool PAST_L1 = BYTES == 16>
__device__ __forceinline__ void copy_async(void *to, const void *from, bool inside)
{
#if __CUDA_ARCH__ >= 800
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if (PAST_L1)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(BYTES),
                     "r"(inside ? BYTES : 0)
                     : "memory");
#else
#pragma unroll
    for (int i = 0; i < BYTES / 4; i++)
        ((unsigned *)to)[i] = inside ? ((const unsigned *)from)[i] : 0;
#endif
}

// Ends a group of copies: those that this thread started since the last group.
__device__ __forceinline__ void commit_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits until at most LEFT of this thread's groups of copies are not complete.
template <int LEFT>
__device__ __forceinline__ void wait_copies()
{
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
#endif
}
