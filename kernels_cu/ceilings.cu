// Ceilings: what a card can do at most, one small kernel for each thing that it does.
//
// A kernel here does one kind of work, enough of it that nothing else counts: BDIMX threads a block, as many blocks as
// the card holds at once, and a loop of `passes` that is long against a launch. What is counted is the loop; the host
// divides by the time. Each kernel is built so that its work cannot be left out:
//
//   the result needs all of it, is stored, and is compared with what the host knows it must be;
//   the factors come from memory, so that the compiler cannot compute with them;
//   the machine code of the loop is read before it is timed: so many FFMA, LDS or HMMA a pass, and little else.
//
// Arithmetic runs in CHAINS independent chains a thread. A chain's step needs the step before it, as the compiler sees;
// the chains fill the time that a step takes until its result can be used.

#ifndef BDIMX
#define BDIMX 256
#endif

#define WARP 32
#define VECTORS 4  // of 16 bytes that a thread of a memory kernel has under way
#define COPIED 1   // the same of a copy: more would read and write in bursts, which the memory turns round for
#define CHAINS 8
#define STEPS 64   // of each chain in a pass
#define HOPS 16    // of a pointer chase, and additions of the atomics, in a pass
#define ODD 2654435761u  // 2^32 over the golden ratio: word w of an array holds w * ODD + 1, unlike its neighbours

#define GENERATOR_A 1664525u     // of a linear congruential generator modulo 2^32 (Numerical Recipes, 3rd ed., 7.1.2)
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
// On an H200 one a thread copies 1 GiB at 4251 GB/s and four at 4069, while reading and writing alone gain from four.
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

// Adds a block's sums to the total: shuffles within a warp, then one atomic addition a warp. Unsigned sums wrap, so the
// order of the additions does not matter.
__device__ __forceinline__ void add_up(unsigned sum, unsigned *total)
{
    for (int half = WARP / 2; half > 0; half /= 2)
        sum += __shfl_down_sync(0xFFFFFFFF, sum, half);
    if (threadIdx.x % WARP == 0)
        atomicAdd(total, sum);
}

// Reads everything and adds all words up: a word that was not read would be missing in the sum.
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

// Reads tiles of an array that lies in the L2, in each pass another one: `advance` tiles further on, around the end.
// __ldcg asks the L2 and leaves the L1 out, which would else serve what the multiprocessor had read before.
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
// The loads are volatile, since the tile never changes and one pass would do for all.
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

// The pattern of memory_write, 16 KiB of it. A multiprocessor's own cache of constants holds 2 KiB.
__constant__ unsigned constants[CONSTANTS] = {WORD1024(0), WORD1024(1024), WORD1024(2048), WORD1024(3072)};

// Reads constants, each lane another word: the cache answers one address after the other. The lanes are `stride` words
// apart, modulo a power of two of which `mask` is one less; where a warp begins is the next number of a generator.
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

// One step of a chain: x * a + b, which is one fused multiply-add. Of integers the compiler would try to make a formula
// for all steps, for a minute.
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

// Multiplies and adds in float32. The factors are 1 and 1, which the compiler does not know: a chain counts its steps,
// exactly up to 2^24.
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
// of the ones before.
extern "C" __global__ void int32_mad(const unsigned *factors, unsigned *out, unsigned passes)
{
    run_chains(factors, out, passes);
}

// Issues instructions of two pipes in turn, a float32 multiply-add and a rotation, so that no pipe holds the schedulers
// up: four warp instructions a clock and multiprocessor are the most.
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

// Special functions: x becomes 2^-x, which comes to rest where x = 2^-x, at 0.6411857.
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

// Two float16 multiply-adds an instruction. float16 counts to 2048 only, so a chain is the quadratic map x * x + a,
// whose numbers jump about: one step more or less ends elsewhere.
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
// A lane's registers of A and B come from memory, a word a lane each, those of A first. The host puts one number into
// all elements of A and another into all of B: every element of C then grows by k times their product a step, wherever
// a lane holds it, and sums of small whole numbers are exact. A word holds one tf32, two float16 or bfloat16, or four
// int8. The clocks that the loop takes tell how fast the card clocks meanwhile: tensor cores take the most power.
#define MMA_STEPS 8  // of each accumulator in a pass

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

// The same in float64; but for compute capability 9.0 the sides are 8 x 8 x 4, and a lane has two elements of C.
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

// Compute capability 9.0 alone: wgmma, by which four warps, a group, multiply 64 x k by k x 256 elements that the tensor
// cores read from shared memory themselves. An instruction goes over 32 bytes of each row of A and of each column of B,
// so a tile of 128 bytes is four of them, whatever the format. Rows of 128 bytes whose pieces change places, eight of
// them 1024 bytes on from the eight before, as a product's tiles would lie; the elements are equal as above.
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
#define GROUP_STEPS 16             // instructions of a group in a pass
#define GROUP_A_WORDS (64 * 8)     // of 16 bytes
#define GROUP_WORDS (GROUP_A_WORDS + 256 * 8)
#define GROUP_ROWS (1ull << 16 | 64ull << 32 | 1ull << 62)
#define C4(R, i) R(c[i]), R(c[i + 1]), R(c[i + 2]), R(c[i + 3])
#define C16(R, i) C4(R, i), C4(R, i + 4), C4(R, i + 8), C4(R, i + 12)
#define C64(R, i) C16(R, i), C16(R, i + 16), C16(R, i + 32), C16(R, i + 48)
#define GROUP_LIST                                                                                                     \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "                            \
    "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "                            \
    "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "                            \
    "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "                            \
    "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "                            \
    "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, %103, "                        \
    "%104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, %117, "                             \
    "%118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

#define WGMMA(NAME, INSTRUCTION, C, REGISTER, SCALES)                                                                  \
    extern "C" __global__ void NAME(const uint4 *words, double *out, long long *clocks, unsigned passes)               \
    {                                                                                                                  \
        __shared__ __align__(1024) uint4 tiles[GROUP_WORDS];                                                           \
        C c[128];                                                                                                      \
        double sum = 0;                                                                                                \
        _Pragma("unroll 1") for (int i = threadIdx.x; i < GROUP_WORDS; i += BDIMX)                                     \
            tiles[i] = words[i];                                                                                       \
        for (int i = 0; i < 128; i++)                                                                                  \
            c[i] = (C)(i % 4);                                                                                         \
        asm volatile("fence.proxy.async;" ::: "memory");                                                               \
        __syncthreads();                                                                                               \
        Bytes a = __cvta_generic_to_shared(tiles) >> 4 | GROUP_ROWS, b = a + GROUP_A_WORDS;                            \
        long long began = clock64();                                                                                   \
        _Pragma("unroll 1") for (unsigned pass = 0; pass < passes; pass++)                                             \
        {                                                                                                              \
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");                                                    \
            _Pragma("unroll") for (int i = 0; i < GROUP_STEPS; i++)                                                    \
                asm volatile(INSTRUCTION " {" GROUP_LIST "}, %128, %129, " SCALES ";"                                  \
                             : C64(REGISTER, 0), C64(REGISTER, 64)                                                     \
                             : "l"(a + i % 4 * 2), "l"(b + i % 4 * 2));                                                \
            asm volatile("wgmma.commit_group.sync.aligned;\n wgmma.wait_group.sync.aligned 0;" ::: "memory");          \
        }                                                                                                              \
        clocks[blockIdx.x * BDIMX + threadIdx.x] = clock64() - began;                                                  \
        for (int i = 0; i < 128; i++)                                                                                  \
            sum += c[i];                                                                                               \
        out[blockIdx.x * BDIMX + threadIdx.x] = sum;                                                                   \
    }

WGMMA(wgmma_tf32, "wgmma.mma_async.sync.aligned.m64n256k8.f32.tf32.tf32", float, "+f", "1, 1, 1")
WGMMA(wgmma_bf16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16", float, "+f", "1, 1, 1, 0, 0")
WGMMA(wgmma_fp16, "wgmma.mma_async.sync.aligned.m64n256k16.f32.f16.f16", float, "+f", "1, 1, 1, 0, 0")
WGMMA(wgmma_int8, "wgmma.mma_async.sync.aligned.m64n256k32.s32.s8.s8", int, "+r", "1")
#endif

// ------------------------------------------------------------------------------------------------------------ latency

// Makes a chain of pointers: node i, `spacing` bytes from the one before, points at node next[i].
extern "C" __global__ void link_chain(const unsigned *next, char *nodes, unsigned n, unsigned spacing)
{
    unsigned i = blockIdx.x * BDIMX + threadIdx.x;

    if (i < n)
        *(char **)(nodes + (Bytes)i * spacing) = nodes + (Bytes)next[i] * spacing;
}

// Follows the chain with one thread: each load has its address from the load before, so their times add up.
// Where it ends depends on every hop. .cg leaves the L1 out.
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

#define NODES 1024  // of the chain in shared memory

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

// Where a lane adds is read from memory, as the number of a word: of an address that it knows to be the same for all
// lanes the compiler makes one addition a warp.

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

// Adds to shared memory: all lanes to one word where `place` is 0, to 32 banks where it is the thread's number.
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

// Does nothing: what is left of its time is the launch.
extern "C" __global__ void empty() {}
