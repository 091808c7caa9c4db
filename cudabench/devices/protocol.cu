// Helper kernels for measurements. None of them runs while a kernel is timed.

// Blocks the stream until the host sets flag[0]. After two seconds the kernel ends anyway, and sets flag[1] as a sign.
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

// The finalizer of SplitMix64: every bit of the result depends on every bit of x.
__device__ unsigned long long mixed(unsigned long long x)
{
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// Hashes each 8-byte word together with its position, and adds the hashes. The sum depends on the order of the words,
// but not on the order in which threads run. If the address `bytes` is not a multiple of 16, single bytes are hashed.
// `key` is random in each run, so that no kernel can make a wrong output with the same digest as the correct output.
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

// Overwrites the shared memory and nearly all registers of an SM, which the hardware does not clear between launches.
// One block fills an SM: it has 256 threads with 240 registers, and as much shared memory as a block may have.
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
    // The factor is read last, so that all values stay in registers until then.
    const unsigned factor = ((volatile unsigned *)shared)[threadIdx.x];
#pragma unroll
    for (int i = 0; i < 224; i++)
        sum = sum * factor + held[i];
    if (sum == 1) // never true: all values are -1, and 224 terms with alternating signs sum to 0
        shared[0] = 0;
}

// Overwrites the local memory of each resident thread, where a thread stores values that do not fit its registers.
#ifndef LOCAL_WORDS
#define LOCAL_WORDS 1
#endif
extern "C" __global__ void scrub_local()
{
    volatile unsigned words[LOCAL_WORDS];
    for (unsigned i = 0; i < LOCAL_WORDS; i++)
        words[i] = 0xFFFFFFFFu;
}

// Sets L2 lines that a kernel marked to be kept (evict_last) back to normal priority, so that a flush evicts them.
extern "C" __global__ void demote(char *bytes, unsigned long long n)
{
#if __CUDA_ARCH__ >= 800
    const unsigned long long at = (blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x) * 128;
    if (at + 128 <= n)
        asm volatile("applypriority.global.L2::evict_normal [%0], 128;" ::"l"(bytes + at) : "memory");
#endif
}
