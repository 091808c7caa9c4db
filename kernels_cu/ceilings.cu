// Ceilings: the highest rates and shortest latencies of a card, one small kernel for each.
//
// A kernel does one kind of work, so much of it that the rest of its time does not matter: BDIMX threads a block, as
// many blocks as the card holds at once, and a loop of `passes` that takes far longer than a launch. The host divides
// the work of the loop by the time. The compiler cannot leave out work of a kernel, because
//
//   the result needs all of it, is stored, and is compared with the value that the host expects;
//   the factors come from memory, so that the compiler cannot compute with them;
//   the machine code of the loop is checked before it is timed: so many FFMA, LDS or HMMA a pass, and little else.
//
// Arithmetic runs in CHAINS independent chains a thread. A chain's step needs the result of the step before; the chains
// fill the time until that result is ready.

#ifndef BDIMX
#define BDIMX 256
#endif

#define WARP 32
#define VECTORS 4  // accesses of 16 bytes that a thread of a memory kernel has in flight
#define COPIED 1   // the same for a copy: with more, the memory would switch between bursts of reads and writes
#define CHAINS 8
#define STEPS 64   // steps of each chain in a pass
#define HOPS 16    // loads of a pointer chase, or additions of the atomics, in a pass
#define ODD 2654435761u  // 2^32 / golden ratio: word w of an array is w * ODD + 1, so that neighbours differ

#define GENERATOR_A 1664525u     // linear congruential generator x * A + B modulo 2^32 (Numerical Recipes, 3rd, 7.1.2)
#define GENERATOR_B 1013904223u

typedef unsigned long long Bytes;

// ------------------------------------------------------------------------------------------------------------- memory

// Writes the pattern: word w is w * ODD + 1.
// 16 bytes a store, VECTORS stores a turn, whole tiles only: no store depends on another, and no load stands between.
extern "C" __global__ void memory_write(uint4 *out, Bytes n)
{
#pragma unroll 1
    for (Bytes i = (Bytes)blockIdx.x * BDIMX * VECTORS + threadIdx.x; i < n; i += (Bytes)gridDim.x * BDIMX * VECTORS) {
        unsigned word = (unsigned)i * 4 * ODD + 1;
#pragma unroll
        for (int v = 0; v < VECTORS; v++, word += BDIMX * 4 * ODD)
            out[i + v * BDIMX] = make_uint4(word, word + ODD, word + 2 * ODD, word + 3 * ODD);
    }
}

// Copies 16 bytes an access, COPIED loads before the first store.
// On an H200, one access a thread copies 1 GiB at 4251 GB/s, four at 4069; reading alone and writing alone gain from
// four.
extern "C" __global__ void memory_copy(const uint4 *in, uint4 *out, Bytes n)
{
#pragma unroll 1
    for (Bytes i = (Bytes)blockIdx.x * BDIMX * COPIED + threadIdx.x; i < n; i += (Bytes)gridDim.x * BDIMX * COPIED) {
        uint4 x[COPIED];
#pragma unroll
        for (int v = 0; v < COPIED; v++)
            x[v] = in[i + v * BDIMX];
#pragma unroll
        for (int v = 0; v < COPIED; v++)
            out[i + v * BDIMX] = x[v];
    }
}

__device__ __forceinline__ unsigned sum_of(uint4 x) { return x.x + x.y + x.z + x.w; }

// Adds the sums of a block's threads to the total: by shuffles within a warp, then one atomic addition for each warp.
// Unsigned sums wrap, so the order of the additions does not matter.
__device__ __forceinline__ void add_up(unsigned sum, unsigned *total)
{
    for (int half = WARP / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xFFFFFFFF, sum, half);
    if (threadIdx.x % WARP == 0)
        atomicAdd(total, sum);
}

// Reads everything and adds all words, so that a word that is not read would be missing in the sum.
extern "C" __global__ void memory_read(const uint4 *in, unsigned *total, Bytes n)
{
    unsigned sum = 0;
#pragma unroll 1
    for (Bytes i = (Bytes)blockIdx.x * BDIMX * VECTORS + threadIdx.x; i < n; i += (Bytes)gridDim.x * BDIMX * VECTORS) {
        uint4 x[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            x[v] = in[i + v * BDIMX];
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            sum += sum_of(x[v]);
    }
    add_up(sum, total);
}

// Reads tiles of an array in the L2; each pass reads the tile `advance` tiles further on, and begins again after the
// last. __ldcg bypasses the L1, which would hit for tiles that the multiprocessor read before.
extern "C" __global__ void l2_read(const uint4 *in, unsigned *total, unsigned tiles, unsigned advance, unsigned passes)
{
    unsigned tile = blockIdx.x % tiles, sum = 0;
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
        const uint4 *from = in + tile * (BDIMX * VECTORS) + threadIdx.x;
        uint4 x[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            x[v] = __ldcg(from + v * BDIMX);
#pragma unroll
        for (int v = 0; v < VECTORS; v++)
            sum += sum_of(x[v]);
        tile += advance;
        tile -= tile >= tiles ? tiles : 0;
    }
    add_up(sum, total);
}

// Reads shared memory 16 bytes a lane, neighbours by neighbouring lanes: four wavefronts of 128 bytes, no conflict.
// The loads are volatile, because the tile never changes, and the compiler would keep one pass of loads.
extern "C" __global__ void shared_read(unsigned *out, unsigned passes)
{
    __shared__ uint4 tile[VECTORS * BDIMX];
    unsigned sum = 0;

    for (int v = 0; v < VECTORS; v++) {
        unsigned word = (v * BDIMX + threadIdx.x) * 4 * ODD + 1;
        tile[v * BDIMX + threadIdx.x] = make_uint4(word, word + ODD, word + 2 * ODD, word + 3 * ODD);
    }
    __syncthreads();
    unsigned own = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int load = 0; load < 4 * VECTORS; load++) {
            uint4 x;
            asm volatile("ld.volatile.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                         : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w)
                         : "r"(own + load % VECTORS * BDIMX * 16));
            sum += sum_of(x);
        }
    }
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
}

#define WORD1(w) (w) * ODD + 1
#define WORD4(w) WORD1(w), WORD1(w + 1), WORD1(w + 2), WORD1(w + 3)
#define WORD16(w) WORD4(w), WORD4(w + 4), WORD4(w + 8), WORD4(w + 12)
#define WORD64(w) WORD16(w), WORD16(w + 16), WORD16(w + 32), WORD16(w + 48)
#define WORD256(w) WORD64(w), WORD64(w + 64), WORD64(w + 128), WORD64(w + 192)
#define WORD1024(w) WORD256(w), WORD256(w + 256), WORD256(w + 512), WORD256(w + 768)
#define CONSTANTS 4096

// 16 KiB of the pattern that memory_write writes. The constant cache of a multiprocessor has 2 KiB.
__constant__ unsigned constants[CONSTANTS] = {WORD1024(0), WORD1024(1024), WORD1024(2048), WORD1024(3072)};

// Reads constants, each lane another word: the cache answers one address after the other. Lanes are `stride` words
// apart, modulo the power of two `mask` + 1. A warp begins at the next number of a generator.
extern "C" __global__ void constant_read(const unsigned *seed, unsigned *out, unsigned stride, unsigned mask,
                                         unsigned passes)
{
    unsigned state = seed[threadIdx.x], apart = threadIdx.x % WARP * stride, sum = 0;
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int load = 0; load < HOPS; load++) {
            state = state * GENERATOR_A + GENERATOR_B;
            sum += constants[((state >> 16) + apart) & mask];
        }
    }
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
}

// --------------------------------------------------------------------------------------------------------- arithmetic

// Returns the next number of a chain: x * a + b, one fused multiply-add. For integers the compiler would search for a
// formula for all steps together, which takes a minute.
__device__ __forceinline__ float stepped(float x, float a, float b) { return fmaf(x, a, b); }
__device__ __forceinline__ double stepped(double x, double a, double b) { return fma(x, a, b); }
__device__ __forceinline__ unsigned stepped(unsigned x, unsigned a, unsigned b)
{
    asm volatile("mad.lo.u32 %0, %0, %1, %2;" : "+r"(x) : "r"(a), "r"(b));
    return x;
}

template <typename X> __device__ __forceinline__ void run_chains(const X *factors, X *out, unsigned passes)
{
    X a = factors[0], b = factors[1], x[CHAINS], sum = 0;

    for (int c = 0; c < CHAINS; c++)
        x[c] = (X)(threadIdx.x % WARP + c);
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                x[c] = stepped(x[c], a, b);
    }
    for (int c = 0; c < CHAINS; c++)
        sum += x[c];
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
}

// Multiplies and adds in float32. The factors are 1 and 1, but the compiler does not know them: a chain counts its
// steps, exactly up to 2^24.
extern "C" __global__ void fp32_fma(const float *factors, float *out, unsigned passes)
{
    run_chains(factors, out, passes);
}

// The same in float64.
extern "C" __global__ void fp64_fma(const double *factors, double *out, unsigned passes)
{
    run_chains(factors, out, passes);
}

// The same in 32-bit integers, which wrap: a chain is a linear congruential generator, and its last number needs all
// numbers before.
extern "C" __global__ void int32_mad(const unsigned *factors, unsigned *out, unsigned passes)
{
    run_chains(factors, out, passes);
}

// Issues instructions of two pipes in turn, a float32 multiply-add and a rotation, so that no pipe delays the
// schedulers: at most four warp instructions a clock and multiprocessor.
extern "C" __global__ void issue_mixed(const float *factors, float *out, unsigned *rotated, unsigned passes)
{
    float a = factors[0], b = factors[1], x[CHAINS], sum = 0;
    unsigned bits[CHAINS], all = 0, by = (unsigned)a;

    for (int c = 0; c < CHAINS; c++) {
        x[c] = threadIdx.x % WARP + c;
        bits[c] = (threadIdx.x % WARP * CHAINS + c) * ODD;
    }
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int step = 0; step < STEPS / 2; step++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++) {
                x[c] = stepped(x[c], a, b);
                bits[c] = __funnelshift_l(bits[c], bits[c], by);
            }
    }
    for (int c = 0; c < CHAINS; c++) {
        sum += x[c];
        all ^= bits[c];
    }
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
    rotated[blockIdx.x * BDIMX + threadIdx.x] = all;
}

// Computes special functions: x becomes 2^-x, which converges to x = 2^-x = 0.6411857.
extern "C" __global__ void xu_exp2(float *out, unsigned passes)
{
    float x[CHAINS], sum = 0;

    for (int c = 0; c < CHAINS; c++)
        x[c] = threadIdx.x % WARP + c;
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                asm volatile("ex2.approx.ftz.f32 %0, %1;" : "=f"(x[c]) : "f"(-x[c]));
    }
    for (int c = 0; c < CHAINS; c++)
        sum += x[c];
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
}

// Does two float16 multiply-adds an instruction. float16 counts to 2048 only, so a chain is the quadratic map x * x +
// a, whose numbers are chaotic: one step more or less gives another number.
extern "C" __global__ void half2_fma(const unsigned *factors, unsigned *out, unsigned passes)
{
    unsigned a = factors[0], x[CHAINS], sum = 0;

    for (int c = 0; c < CHAINS; c++)
        x[c] = 0x38003400u + 0x00100001u * (threadIdx.x % WARP * CHAINS + c);
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int step = 0; step < STEPS; step++)
#pragma unroll
            for (int c = 0; c < CHAINS; c++)
                asm volatile("fma.rn.f16x2 %0, %0, %0, %1;" : "+r"(x[c]) : "r"(a));
    }
    for (int c = 0; c < CHAINS; c++)
        sum += x[c];
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
}

// ------------------------------------------------------------------------------------------------------------- tensor

// Tensor cores by mma.sync: a warp multiplies A (16 x k) by B (k x 8) and adds to C (16 x 8), in CHAINS accumulators.
// A lane's registers of A and B come from memory, a word a lane each, those of A first. The host sets all elements of A
// to one number and all of B to another: each element of C grows by k times their product a step, whichever lane holds
// it, and sums of small whole numbers are exact. A word holds one tf32, two float16 or bfloat16, or four int8. The
// clocks of the loop show how fast the card clocks meanwhile: tensor cores take the most power.
#define MMA_STEPS 8  // steps of each accumulator in a pass

#define TENSOR(NAME, INSTRUCTION, C, REGISTER)                                                                         \
    extern "C" __global__ void NAME(const unsigned *words, double *out, long long *clocks, unsigned passes)            \
    {                                                                                                                  \
        unsigned ab[6];                                                                                                \
        C c[CHAINS][4];                                                                                                \
        double sum = 0;                                                                                                \
        for (int i = 0; i < 6; i++)                                                                                    \
            ab[i] = words[i * WARP + threadIdx.x % WARP];                                                              \
        for (int i = 0; i < CHAINS * 4; i++)                                                                           \
            c[i / 4][i % 4] = (C)i;                                                                                    \
        long long began = clock64();                                                                                   \
        _Pragma("unroll 1") for (unsigned pass = 0; pass < passes; pass++)                                             \
        {                                                                                                              \
            _Pragma("unroll") for (int i = 0; i < MMA_STEPS * CHAINS; i++)                                             \
                asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"            \
                             : REGISTER(c[i % CHAINS][0]), REGISTER(c[i % CHAINS][1]), REGISTER(c[i % CHAINS][2]),     \
                               REGISTER(c[i % CHAINS][3])                                                              \
                             : "r"(ab[0]), "r"(ab[1]), "r"(ab[2]), "r"(ab[3]), "r"(ab[4]), "r"(ab[5]));                \
        }                                                                                                              \
        clocks[blockIdx.x * BDIMX + threadIdx.x] = clock64() - began;                                                  \
        for (int i = 0; i < CHAINS * 4; i++)                                                                           \
            sum += c[i / 4][i % 4];                                                                                    \
        out[blockIdx.x * BDIMX + threadIdx.x] = sum;                                                                   \
    }

#if __CUDA_ARCH__ >= 800
TENSOR(tensor_tf32, "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32", float, "+f")
TENSOR(tensor_bf16, "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32", float, "+f")
TENSOR(tensor_fp16, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", float, "+f")
TENSOR(tensor_int8, "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32", int, "+r")

// The same in float64. Except on compute capability 9.0, sides are 8 x 8 x 4, and a lane has two elements of C.
extern "C" __global__ void tensor_fp64(const double *words, double *out, long long *clocks, unsigned passes)
{
    double ab[12], c[CHAINS][4], sum = 0;

    for (int i = 0; i < 12; i++)
        ab[i] = words[i * WARP + threadIdx.x % WARP];
    for (int i = 0; i < CHAINS * 4; i++)
        c[i / 4][i % 4] = i;
    long long began = clock64();
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int i = 0; i < MMA_STEPS * CHAINS; i++)
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1000
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
                         "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                         : "+d"(c[i % CHAINS][0]), "+d"(c[i % CHAINS][1]), "+d"(c[i % CHAINS][2]),
                           "+d"(c[i % CHAINS][3])
                         : "d"(ab[0]), "d"(ab[1]), "d"(ab[2]), "d"(ab[3]), "d"(ab[4]), "d"(ab[5]), "d"(ab[6]),
                           "d"(ab[7]), "d"(ab[8]), "d"(ab[9]), "d"(ab[10]), "d"(ab[11]));
#else
            asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                         : "+d"(c[i % CHAINS][0]), "+d"(c[i % CHAINS][1])
                         : "d"(ab[0]), "d"(ab[8]));
#endif
    }
    clocks[blockIdx.x * BDIMX + threadIdx.x] = clock64() - began;
    for (int i = 0; i < CHAINS * 4; i++)
        sum += c[i / 4][i % 4];
    out[blockIdx.x * BDIMX + threadIdx.x] = sum;
}
#endif

#include "ceilings_hopper.cuh"

// ------------------------------------------------------------------------------------------------------------ latency

// Makes a chain of pointers: node i points at node next[i]; nodes are `spacing` bytes apart.
extern "C" __global__ void link_chain(const unsigned *next, char *nodes, unsigned n, unsigned spacing)
{
    unsigned i = blockIdx.x * BDIMX + threadIdx.x;

    if (i < n)
        *(char **)(nodes + (Bytes)i * spacing) = nodes + (Bytes)next[i] * spacing;
}

// Follows the chain with one thread: each load gets its address from the load before, so their times add up.
// The end depends on every hop. .cg bypasses the L1.
extern "C" __global__ void global_chase(char *nodes, Bytes *end, unsigned passes)
{
    char *node = nodes;
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int hop = 0; hop < HOPS; hop++)
            asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(node));
    }
    *end = node - nodes;
}

#define NODES 1024  // nodes of the chain in shared memory

// The same in shared memory, whose addresses are 32 bits.
extern "C" __global__ void shared_chase(const unsigned *next, unsigned *end, unsigned passes)
{
    __shared__ unsigned nodes[NODES];

    unsigned first = (unsigned)__cvta_generic_to_shared(nodes);
    for (int i = threadIdx.x; i < NODES; i += BDIMX)
        nodes[i] = first + next[i] * 4;
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    unsigned node = first;
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int hop = 0; hop < HOPS; hop++)
            asm volatile("ld.volatile.shared.u32 %0, [%0];" : "+r"(node));
    }
    *end = (node - first) / 4;
}

// ------------------------------------------------------------------------------------------------------------ atomics

// A lane reads the number of its word from memory. If the compiler knew that all lanes have the same address, it would
// make a single addition for each warp.
__device__ __forceinline__ void add_to_global(unsigned *word, unsigned addend, unsigned passes)
{
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int i = 0; i < HOPS; i++)
            asm volatile("red.global.add.u32 [%0], %1;" ::"l"(word), "r"(addend) : "memory");
    }
}

// Adds to one word from one lane of every warp; `place` is 0 for all of them.
extern "C" __global__ void global_atomic_same(const unsigned *place, unsigned *words, unsigned addend, unsigned passes)
{
    if (threadIdx.x % WARP == 0)
        add_to_global(words + place[threadIdx.x], addend, passes);
}

// Adds to neighbouring words, each thread to its own; `place` is the thread's number.
extern "C" __global__ void global_atomic_spread(const unsigned *place, unsigned *words, unsigned addend,
                                                unsigned passes)
{
    add_to_global(words + blockIdx.x * BDIMX + place[threadIdx.x], addend, passes);
}

// Adds to shared memory: all lanes to one word if `place` is 0, to 32 banks if it is the thread's number.
extern "C" __global__ void shared_atomic(const unsigned *place, unsigned *out, unsigned addend, unsigned passes)
{
    __shared__ unsigned words[BDIMX];

    words[threadIdx.x] = 0;
    __syncthreads();
    unsigned at = (unsigned)__cvta_generic_to_shared(&words[place[threadIdx.x]]);
#pragma unroll 1
    for (unsigned pass = 0; pass < passes; pass++) {
#pragma unroll
        for (int i = 0; i < HOPS; i++)
            asm volatile("red.shared.add.u32 [%0], %1;" ::"r"(at), "r"(addend) : "memory");
    }
    __syncthreads();
    out[blockIdx.x * BDIMX + threadIdx.x] = words[threadIdx.x];
}

// ------------------------------------------------------------------------------------------------------------- launch

// Does nothing: its time is that of the launch.
extern "C" __global__ void empty() {}
