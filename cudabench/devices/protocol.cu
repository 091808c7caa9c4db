// The kernels of the measuring protocol. None of them lies in a timed window.

// Holds the stream until the host sets flag[0], for two seconds at most, lest a mistake hang the GPU; flag[1] then tells.
extern "C" __global__ void block_stream(volatile int *flag)
{
    unsigned long long start, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start));
    while (flag[0] == 0) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - start > 2000000000ull) {
            flag[1] = 1;
            return;
        }
    }
}

// SplitMix64's finalizer: every bit of x moves every bit of the result.
__device__ unsigned long long mixed(unsigned long long x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// Adds up the mixed 8-byte words, each with its place mixed in, so that their order counts and the threads' does not.
// Where `bytes` is not aligned to 16, as a module's variable may be, it goes byte by byte. `key` is drawn for the run, so
// that no kernel can make up an output with the digest of another.
extern "C" __global__ void digest(const unsigned char *bytes, unsigned long long n, unsigned long long key,
                                  unsigned long long *sum)
{
    const unsigned long long golden = 0x9E3779B97F4A7C15ull;
    unsigned long long at = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x, here = 0;
    const unsigned long long stride = gridDim.x * (unsigned long long)blockDim.x;
    const unsigned long long pairs = (unsigned long long)bytes % 16 ? 0 : n / 16;
    const ulonglong2 *words = (const ulonglong2 *)bytes;
    for (unsigned long long i = at; i < pairs; i += stride) {
        const ulonglong2 pair = words[i];
        here += mixed((pair.x ^ key) + golden * (2 * i + 1)) + mixed((pair.y ^ key) + golden * (2 * i + 2));
    }
    for (unsigned long long i = pairs * 16 + at; i < n; i += stride)
        here += mixed((bytes[i] ^ key) + golden * (i + 3));
    for (int lanes = 16; lanes > 0; lanes /= 2)
        here += __shfl_down_sync(0xFFFFFFFFu, here, lanes);
    if (threadIdx.x % 32 == 0)
        atomicAdd(sum, here);
}

// Overwrites the shared memory of an SM and nearly all of its registers, which the hardware does not clear between
// launches. One block fills an SM: 256 threads of 240 registers, and all the shared memory that a block may have.
extern "C" __global__ void __launch_bounds__(256, 1) scrub()
{
    extern __shared__ unsigned shared[];
    unsigned bytes;
    asm volatile("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
    for (unsigned i = threadIdx.x; i < bytes / 4; i += blockDim.x)
        ((volatile unsigned *)shared)[i] = 0xFFFFFFFFu;
    __syncthreads();
    unsigned held[224], sum = 0;
#pragma unroll
    for (int i = 0; i < 224; i++)
        held[i] = ((volatile unsigned *)shared)[i];
    __syncthreads();
    // The factor is read last, so that all values are held until then.
    const unsigned factor = ((volatile unsigned *)shared)[threadIdx.x];
#pragma unroll
    for (int i = 0; i < 224; i++)
        sum = sum * factor + held[i];
    if (sum == 1) // never: all are -1, and 224 terms of alternating sign make 0
        shared[0] = 0;
}

// Overwrites local memory, where threads keep what does not fit into registers: every resident thread its own.
#ifndef LOCAL_WORDS
#define LOCAL_WORDS 1
#endif
extern "C" __global__ void scrub_local()
{
    volatile unsigned words[LOCAL_WORDS];
    for (unsigned i = 0; i < LOCAL_WORDS; i++)
        words[i] = 0xFFFFFFFFu;
}

// Sets lines that a kernel asked the L2 to keep (evict_last) back to the normal priority, so that a flush evicts them.
extern "C" __global__ void demote(char *bytes, unsigned long long n)
{
#if __CUDA_ARCH__ >= 800
    const unsigned long long at = (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x) * 128;
    if (at + 128 <= n)
        asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(bytes + at) : "memory");
#endif
}
