// Kernels that could be faster than a limit of theirs: each has something that a careless bound counts and a card does
// not pay for. attacks.toml launches them; limits_unseen.py holds limits against times.

// Reads an array that the L2 holds, many times over.
__global__ void l2_resident(const float4 *in, float *out, int n, int times)
{
    float sum = 0;
    for (int t = 0; t < times; t++)
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
            float4 x = __ldcg(in + (i + t * 4096) % n);
            sum += x.x + x.y + x.z + x.w;
        }
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// All lanes of all blocks read the same words, again and again.
__global__ void broadcast(const float *in, float *out, int k)
{
    float sum = 0;
    for (int i = 0; i < k; i++)
        sum += in[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Writes to a scratch array and reads its neighbour's part back: what was just written never comes from memory.
__global__ void scratch(const float *in, float *kept, float *out)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    kept[i] = 2 * in[i];
    __syncthreads();
    out[i] = kept[i ^ 1] + 1;
}

// The same scratch array for all blocks on a multiprocessor's worth of slots: it stays in the L2.
__global__ void scratch_small(const float *in, float *kept, float *out, int slots)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, slot = blockIdx.x % slots * blockDim.x;
    float x = in[i];
    for (int t = 0; t < 8; t++)
        kept[slot + threadIdx.x] = x + t;
    out[i] = x;
}

// Adds to one word, from every lane.
__global__ void one_word(const float *in, float *sum, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicAdd(sum, in[i]);
}

// Adds to few words, most of them to one.
__global__ void skewed(const int *in, unsigned *bins, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        int x = in[i];
        atomicAdd(&bins[x < 240 ? 0 : x], (unsigned)x);
    }
}

// The largest of all, by atomics on one word.
__global__ void largest(const int *in, int *most, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        atomicMax(most, in[i]);
}

// 31 of 32 blocks end at once.
__global__ void early_exit(const float *in, float *out, int n)
{
    if (blockIdx.x % 32)
        return;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < 32; t++)
        out[i] = out[i] * 0.5f + in[(i + t * 1024) % n];
}

// One block of 512 works, and much.
__global__ void rare(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = in[i];
    if (blockIdx.x % 512 == 100)
        for (int t = 0; t < 2000; t++)
            x = x * 0.999f + 0.001f;
    out[i] = x;
}

// A grid for a tenth of the card.
__global__ void few_blocks(const float *in, float *out, int n)
{
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Loads that nobody waits for.
__global__ void dead_loads(const float *in, float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float x;
    for (int t = 0; t < 8; t++)
        asm volatile("ld.global.f32 %0, [%1];" : "=f"(x) : "l"(in + (i + t * 65536) % n));
    out[i] = i;
}

// Many loads at once, each of a thread's own.
__global__ void many_loads(const float4 *in, float4 *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x, all = gridDim.x * blockDim.x;
    float4 x[16];
#pragma unroll
    for (int t = 0; t < 16; t++)
        x[t] = in[i + t * all];
#pragma unroll
    for (int t = 0; t < 16; t++)
        out[i + t * all] = make_float4(x[t].x + 1, x[t].y, x[t].z, x[t].w);
}

// Neighbouring blocks read the same rows at the same time.
__global__ void shared_rows(const float *in, float *out, int cols)
{
    int c = threadIdx.x + (blockIdx.x % 4) * 0, row = blockIdx.x / 4;
    float sum = 0;
    for (int k = 0; k < cols; k += blockDim.x)
        sum += in[(size_t)row * cols + k + c] * (blockIdx.x % 4 + 1);
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Stores to the same words over and over.
__global__ void store_again(float *out, int times)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < times; t++)
        asm volatile("st.global.f32 [%0], %1;" ::"l"(out + i), "f"((float)t));
}

// Writes single bytes, whose sectors are filled by others soon after.
__global__ void bytes_apart(unsigned char *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < 32; t++)
        out[(size_t)i / 32 * 1024 + i % 32 * 32 + t] = t;
}

// Indexed constants, all lanes the same, and lanes in pairs.
__constant__ float table[1024];
__global__ void constants_few(float *out, int k)
{
    float sum = 0;
    for (int i = 0; i < k; i++)
        sum += table[(i + threadIdx.x % 2 * 512) % 1024];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Constants of 4 KiB, each lane its own: all warps go through the table together.
__global__ void constants_together(float *out, int k)
{
    float sum = 0;
    for (int i = 0; i < k; i++)
        sum += table[(i * 32 + threadIdx.x % 32) % 1024];
    out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// A chain of dependent loads, which all threads share.
__global__ void chase(const int *next, int *out, int hops)
{
    int at = 0;
    for (int h = 0; h < hops; h++)
        at = next[at];
    out[blockIdx.x * blockDim.x + threadIdx.x] = at;
}

// Nothing but its blocks.
__global__ void nothing(int *out, int n)
{
    if (n < 0)
        out[0] = 1;
}

__global__ void nothing_in_pairs(int *out, int n)
{
    if (n < 0)
        out[0] = 1;
}
