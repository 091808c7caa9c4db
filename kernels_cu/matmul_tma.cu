// Matrix product by the tensor memory accelerator (compute capability 9.0): one thread asks for a whole tile,
// and the accelerator fetches it.
//
//     fetching group                      multiplying groups
//     wait until the buffer is empty      wait until the buffer is full
//     ask for both tiles                  multiply, release the buffer
//
// So 127 threads of the fetching group idle, and give their registers to the groups that multiply. A ring (`Ring`) has
// buffers for the tiles of RSTAGES steps. c is computed transposed for every type, as in wgmma; a step takes 128 bytes
// of each row of a. The blocks of tma and tma-split loop over c, so that any grid works.

#include "barriers.cuh"
#include "group_products.cuh"
#include "matrix.cuh"

#ifndef TALL
#define TALL 256  // rows of c in a block's tile: 64, 128 or 256
#endif
#define MULTIPLIERS (GROUPS > 1 ? GROUPS - 1 : 1)  // groups that multiply; one more group fetches
#define BESIDE (MULTIPLIERS * 64)                  // columns of c in a block's tile
#define RSTEP (128 / (int)sizeof(T))               // columns of a, and rows of b, in the tiles of one step
#define RSTAGE ((TALL + BESIDE) * 128)             // bytes of the tiles of one step
#ifndef RSTAGES
#define RSTAGES (TALL == 256 ? 4 : 6)  // steps whose tiles are in shared memory, in use or being fetched
#endif
#define PART (64 * 64 * 2)  // bytes of 64 x 64 elements of 2 bytes, a part that is stored to c; a group has two
#define RPARTS (sizeof(T) == 2 ? MULTIPLIERS * 2 * PART : 0)
#define RSHARED (RSTAGES * (RSTAGE + 16) + RPARTS + 1024)  // with a pair of barriers for every step

// The tiles of a block, one after the other, and the ring of PLACES buffers ("places") of SIZE bytes for their steps. A
// place has ROWS rows of a, then parts of b of RSTEP columns; each row has 128 bytes, whose pieces are swizzled. One
// barrier of a place says that it is full, another that it is empty. With 2 BLOCKS of a cluster, `rank` 0 and 1, their
// tiles are side by side and have one number, and each block fetches half of the rows of a for both. In a last column
// without a neighbour the tiles are below each other, and nothing is shared.
template <int ROWS, int SIZE, int PLACES, int BLOCKS = 1> struct Ring {
    unsigned tiles_m, tiles_n, rank, base, full, empty, place, phase;
    int steps, row0, col0;
    bool beside;  // whether the tiles of the blocks are side by side
    char *shared;

    __device__ __forceinline__ Ring(uint4 *tiles, unsigned parts, unsigned idx, int m, int k, int n)
    {
        unsigned start = (unsigned)__cvta_generic_to_shared(tiles);
        base = (start + 1023) / 1024 * 1024;
        shared = (char *)tiles + (base - start);
        full = base + PLACES * SIZE + parts;
        empty = full + PLACES * 8;
        place = phase = 0;
        rank = blockIdx.x % BLOCKS;
        tiles_m = ((unsigned)m + ROWS - 1) / ROWS;
        tiles_n = ((unsigned)n + BESIDE - 1) / BESIDE;
        steps = ((unsigned)k + RSTEP - 1) / RSTEP;
        if (sizeof(T) == 4)
            steps += steps % 2;  // an even number, because two sets of operands in registers alternate
        if (idx == 0) {
            for (int i = 0; i < PLACES; i++) {
                make_barrier(full + i * 8, 1);
                make_barrier(empty + i * 8, MULTIPLIERS * BLOCKS);
            }
#if __CUDA_ARCH__ >= 900
            asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
        }
    }

    // Finds tile number `turn` of the block; returns whether it exists. Blocks that run together work on STRIP rows of
    // tiles and few columns, so that their parts of a and b fit the L2 cache.
    __device__ __forceinline__ bool find(unsigned turn)
    {
        unsigned tile = blockIdx.x / BLOCKS + turn * (gridDim.x / BLOCKS), wide = tiles_n / BLOCKS;
        beside = BLOCKS > 1 && tile < tiles_m * wide;
        if (BLOCKS > 1 && !beside) {
            unsigned below = (tile - tiles_m * wide) * BLOCKS;
            row0 = (below + rank) * ROWS;
            col0 = wide * BLOCKS * BESIDE;
            return tiles_n % BLOCKS > 0 && below < tiles_m;
        }
        if (tile >= tiles_m * wide)
            return false;
        unsigned strip = tile / (STRIP * wide) * STRIP, number = tile - strip * wide;
        unsigned high = min(tiles_m - strip, STRIP);
        row0 = (strip + number % high) * ROWS;
        col0 = (number / high * BLOCKS + rank) * BESIDE;
        return true;
    }

    // Advances to the next place of the ring.
    __device__ __forceinline__ void advance()
    {
        if (++place == PLACES) {
            place = 0;
            phase ^= 1;
        }
    }

    // Returns the address of a place for a descriptor: without the block's rank, which is above bit 17.
    __device__ __forceinline__ unsigned address(unsigned at) const
    {
        return BLOCKS > 1 ? (base + at * SIZE) & 0x3FFFF : base + at * SIZE;
    }

    // Tells all blocks that fetch into a place that a group no longer needs it; `idx`: the thread within the group.
    __device__ __forceinline__ void release(unsigned at, unsigned idx) const
    {
        if (BLOCKS == 1 && idx == 0)
            arrive(empty + at * 8);
        if (BLOCKS > 1 && idx < BLOCKS)
            arrive_at(empty + at * 8, idx);
    }

    // Fetches all steps of all tiles; one thread calls it.
    __device__ __forceinline__ void fetch(const CUtensorMap &map_a, const CUtensorMap &map_b)
    {
        for (unsigned turn = 0; find(turn); turn++)
            for (int step = 0; step < steps; step++, advance()) {
                unsigned barrier = full + place * 8, to = base + place * SIZE;
                wait_phase(empty + place * 8, phase ^ 1);
                expect_bytes(barrier, (ROWS + BESIDE) * 128);
                for (int half = 0; half < BLOCKS; half++) {  // boxes of a
                    int above = half * (ROWS / BLOCKS);
                    if (!beside)
                        fetch_box(to + above * 128, map_a, barrier, row0 + above, step * RSTEP);
                    else if (half == rank)
                        fetch_box<BLOCKS>(to + above * 128, map_a, barrier, row0 + above, step * RSTEP);
                }
                for (int part = 0; part < BESIDE / RSTEP; part++)
                    fetch_box(to + (ROWS + part * RSTEP) * 128, map_b, barrier, step * RSTEP, col0 + part * RSTEP);
            }
    }

    // The same for rows that do not start at multiples of 16 bytes, which maps cannot describe: THREADS threads copy.
    template <int THREADS>
    __device__ __forceinline__ void copy(const T *__restrict__ a, const T *__restrict__ b, int m, int k, int n,
                                         int idx);
};

// Stores four 8 x 8 matrices of elements of 2 bytes, transposed: lane 8 i + j gives the address of column j of matrix
// i.
__device__ __forceinline__ void store_turned(unsigned to, const unsigned (&matrices)[4])
{
#if __CUDA_ARCH__ >= 900
    asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(matrices[0]),
                 "r"(matrices[1]), "r"(matrices[2]), "r"(matrices[3])
                 : "memory");
#endif
}

// Stores a group's sums to c. Elements of 2 bytes go through shared memory, from where boxes of 64 x 64 are stored
// while the group works on. Floats are stored directly, two neighbours a lane.
template <int COUNT>
__device__ __forceinline__ void store_turned_sums(const float (&sum)[COUNT], const CUtensorMap &map_c, T *c, int m,
                                                  int n, int row0, int col0, int column, unsigned part, unsigned idx)
{
    unsigned lane = idx % 32;
    if (sizeof(T) == 4 || n % VEC) {
#pragma unroll
        for (int i = 0; i < COUNT; i++) {
            size_t row = row0 + i / 4 * 8 + lane % 4 * 2 + i % 2, col = col0 + column;
            col += i / 2 % 2 * (sizeof(T) == 4 ? 1 : 8);
            if (sizeof(T) == 4 && n % 2 == 0) {
                if (i / 2 % 2 == 0 && row < m && col < n)
                    *(Pair *)(c + row * n + col) = {(T)sum[i], (T)sum[i + 2 < COUNT ? i + 2 : i]};
            } else if (row < m && col < n)
                c[row * n + col] = sizeof(T) == 4 ? (T)sum[i] : (T)(rounded(sum[i], 0) & 0xFFFF);
        }
        return;
    }
    unsigned chunk = idx / 32 % 4 * 2 + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j < COUNT / 32; j++) {
        unsigned to = part + j % 2 * PART;
#if __CUDA_ARCH__ >= 900
        if (idx % 128 == 0)  // until the store before the last has read its part
            asm volatile("cp.async.bulk.wait_group.read 1;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + idx / 128) : "memory");
#endif
#pragma unroll
        for (int i = 0; i < 32; i += 8) {
            unsigned matrices[4];
#pragma unroll
            for (int e = 0; e < 4; e++)
                matrices[e] = rounded(sum[j * 32 + i + e * 2], sum[j * 32 + i + e * 2 + 1]);
            unsigned row = i * 2 + lane / 16 * 8 + lane % 8;
            store_turned(to + row * 128 + (chunk ^ row % 8) * 16, matrices);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("bar.sync %0, 128;" ::"r"(1 + idx / 128) : "memory");
        if (idx % 128 == 0) {
            asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group"
                         " [%0, {%1, %2}], [%3];" ::"l"(&map_c),
                         "r"(col0 + (int)(idx / 128) * 64), "r"(row0 + j * 64), "r"(to)
                         : "memory");
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        }
#endif
    }
}

// Gives a group of warps MORE or fewer registers than the other groups of the block.
template <int COUNT, bool MORE>
__device__ __forceinline__ void set_registers()
{
#if __CUDA_ARCH__ >= 900
    if (MORE)
        asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(COUNT));
    else
        asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(COUNT));
#endif
}

// Multiplies the tiles that one thread fetches. The last group gives its registers to those that multiply.
template <int BLOCKS>
__device__ __forceinline__ void multiply_fetched(const CUtensorMap &map_a, const CUtensorMap &map_b,
                                                 const CUtensorMap &map_c, const T *__restrict__ a,
                                                 const T *__restrict__ b, T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32, group = idx / 128;
    Ring<TALL, RSTAGE, RSTAGES, BLOCKS> ring(tiles, RPARTS, idx, m, k, n);
    meet<BLOCKS>();

    if (group == MULTIPLIERS) {
        set_registers<40, false>();
        if (k % VEC || n % VEC)
            ring.copy<128>(a, b, m, k, n, idx % 128);
        else if (idx % 128 == 0)
            ring.fetch(map_a, map_b);
    } else {
        set_registers<232, true>();
        // Of float, a lane has two neighbouring columns of b; the columns of a warp are spread so that its loads use
        // all banks. Of elements of 2 bytes, a lane has the columns that the tensor cores give it.
        int place = lane / 8 % 2 * 4 + warp % 2 * 2 + lane / 16;
        int column = sizeof(T) == 4 ? warp / 2 * 32 + place * 4 + lane / 4 % 2 * 2 : warp * 16 + lane / 4;
        int near = (TALL + warp / 2 * 32 + lane % 4) * 128 + (place ^ lane % 4) * 16 + lane / 4 % 2 * 8;
        int far = (near ^ 64) + 512;  // four rows further on, where the pieces have other places
        unsigned columns[2][4][4];
        for (unsigned turn = 0; ring.find(turn); turn++) {
            float sum[TALL / 2] = {};
            hold(sum);
            int before = -1;
            for (int step = 0; step < ring.steps; step += 2)
#pragma unroll
                for (int half = 0; half < 2; half++) {
                    if (sizeof(T) == 2 && step + half == ring.steps)
                        break;
                    wait_phase(ring.full + ring.place * 8, ring.phase);
                    const char *tile = ring.shared + ring.place * RSTAGE;
                    if (sizeof(T) == 4)
#pragma unroll
                        for (int i = 0; i < 4; i++) {
                            *(uint2 *)&columns[half][i][0] = *(const uint2 *)(tile + near + i * 1024);
                            *(uint2 *)&columns[half][i][2] = *(const uint2 *)(tile + far + i * 1024);
                        }
                    // Each eight rows of 128 bytes, whose pieces change places, take 1024 bytes.
                    unsigned long long pattern = 1ull << 16 | 64ull << 32 | 1ull << 62;
                    unsigned long long rows = ring.address(ring.place) >> 4 | pattern;
                    unsigned long long turned = rows + (TALL * 128 + group * PART) / 16;
#if __CUDA_ARCH__ >= 900
                    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
                    for (int i = 0; i < 4; i++)
                        if (sizeof(T) == 4)
                            begin_product(sum, columns[half][i], rows + i * 2);
                        else
                            begin_product<true>(sum, turned + i * 128, rows + i * 2);
#if __CUDA_ARCH__ >= 900
                    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
                    wait_products<1>();
                    if (before >= 0)
                        ring.release(before, idx % 128);
                    before = ring.place;
                    ring.advance();
                }
            wait_products<0>();
            hold(sum);
            ring.release(before, idx % 128);
            store_turned_sums(sum, map_c, c, m, n, ring.row0, ring.col0, column,
                              ring.base + RSTAGES * RSTAGE + group * 2 * PART, idx);
        }
#if __CUDA_ARCH__ >= 900
        if (sizeof(T) == 2 && idx % 128 == 0)
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
    }
    if (BLOCKS > 1)
        meet<BLOCKS>();  // a block must not end while the other still fetches into it
}

// Leaves the fetching to one thread, whose group gives its registers to those that multiply.
// Blocks stay, and take tile after tile: the next tile's fetches begin while this tile's sums are stored. What remains
// is the tensor cores' rate, which the card's power limits for large matrices. If rows do not start at multiples of 128
// bytes, the L2 cache remains too: a row of a box is then in two of its lines.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
matmul_tma(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
           const __grid_constant__ CUtensorMap map_c, const T *__restrict__ a, const T *__restrict__ b,
           T *__restrict__ c, int m, int k, int n)
{
    multiply_fetched<1>(map_a, map_b, map_c, a, b, c, m, k, n);
}

// The next rung, a detour, does the three products of wgmma-split with tma's fetches. Of the four warps that do not
// multiply, one fetches, and three compute the rests of a's elements, a second tile beside the first.
#define SPLIT_ROWS 128  // rows of c in a block's tile; a lane holds its sums twice
#define RESTS ((SPLIT_ROWS + BESIDE) * 128)  // bytes of the tiles of one step
#define ESTAGE (RESTS + SPLIT_ROWS * 128)    // with the rests
#ifndef ESTAGES
#define ESTAGES 4  // steps whose tiles are in shared memory, in use or being fetched
#endif
#define ESHARED (ESTAGES * (ESTAGE + 24) + 1024)  // with three barriers for every step

// Multiplies all 24 bits of float; the warps that multiply only prepare their part of b.
// It has over twice the rate of the multiply-add units, with a smaller error. What remains is the tensor cores' rate:
// three instructions for one of tma's.
extern "C" __global__ void __launch_bounds__(BLOCK, 1)
matmul_tma_split(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                 const __grid_constant__ CUtensorMap map_c, const T *__restrict__ a, const T *__restrict__ b,
                 T *__restrict__ c, int m, int k, int n)
{
    extern __shared__ uint4 tiles[];
    unsigned idx = threadIdx.y * BDIMX + threadIdx.x, lane = idx % 32, warp = idx / 32, group = idx / 128;
    Ring<SPLIT_ROWS, ESTAGE, ESTAGES> ring(tiles, 0, idx, m, k, n);
    unsigned ready = ring.empty + ESTAGES * 8;
    if (idx == 0)
        for (int stage = 0; stage < ESTAGES; stage++)
            make_barrier(ready + stage * 8, 3);
    __syncthreads();

    if (group == MULTIPLIERS) {
        set_registers<40, false>();
        if (warp % 4 > 0) {
            for (unsigned turn = 0; ring.find(turn); turn++)
                for (int step = 0; step < ring.steps; step++, ring.advance()) {
                    float4 *tile = (float4 *)(ring.shared + ring.place * ESTAGE);
                    wait_phase(ring.full + ring.place * 8, ring.phase);
#pragma unroll 4
                    for (int i = idx % 128 - 32; i < SPLIT_ROWS * 8; i += 96) {
                        float4 v = tile[i];
                        tile[i + RESTS / 16] = {rest_of(v.x), rest_of(v.y), rest_of(v.z), rest_of(v.w)};
                    }
#if __CUDA_ARCH__ >= 900
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
                    __syncwarp();
                    if (lane == 0)
                        arrive(ready + ring.place * 8);
                }
        } else if (k % VEC || n % VEC)
            ring.copy<32>(a, b, m, k, n, lane);
        else if (lane == 0)
            ring.fetch(map_a, map_b);
    } else {
        set_registers<232, true>();
        int place = lane / 8 % 2 * 4 + warp % 2 * 2 + lane / 16;
        int column = warp / 2 * 32 + place * 4 + lane / 4 % 2 * 2;
        int near = (SPLIT_ROWS + warp / 2 * 32 + lane % 4) * 128 + (place ^ lane % 4) * 16 + lane / 4 % 2 * 8;
        int far = (near ^ 64) + 512;
        unsigned columns[4][4], rest[4][4];
        for (unsigned turn = 0; ring.find(turn); turn++) {
            float total[SPLIT_ROWS / 2] = {}, sum[SPLIT_ROWS / 2] = {};
            for (int step = 0; step < ring.steps; step++, ring.advance()) {
                wait_phase(ring.full + ring.place * 8, ring.phase);
                const char *tile = ring.shared + ring.place * ESTAGE;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    *(uint2 *)&columns[i][0] = *(const uint2 *)(tile + near + i * 1024);
                    *(uint2 *)&columns[i][2] = *(const uint2 *)(tile + far + i * 1024);
#pragma unroll
                    for (int e = 0; e < 4; e++)
                        rest[i][e] = __float_as_uint(rest_of(__uint_as_float(columns[i][e])));
                }
                wait_phase(ready + ring.place * 8, ring.phase);
                unsigned long long pattern = 1ull << 16 | 64ull << 32 | 1ull << 62;
                unsigned long long rows = (ring.base + ring.place * ESTAGE) >> 4 | pattern;
                unsigned long long rows_rest = rows + RESTS / 16;
                hold(sum);
#if __CUDA_ARCH__ >= 900
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
#pragma unroll
                for (int i = 0; i < 4; i++) {
                    if (i == 0)
                        begin_sum(sum, rest[i], rows);
                    else
                        begin_product(sum, rest[i], rows + i * 2);
                    begin_product(sum, columns[i], rows_rest + i * 2);
                    begin_product(sum, columns[i], rows + i * 2);
                }
#if __CUDA_ARCH__ >= 900
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
                wait_products<0>();
                hold(sum);
                if (idx % 128 == 0)
                    arrive(ring.empty + ring.place * 8);
#pragma unroll
                for (int i = 0; i < SPLIT_ROWS / 2; i++)
                    total[i] += sum[i];
            }
            store_turned_sums(total, map_c, c, m, n, ring.row0, ring.col0, column, 0, idx);
        }
    }
}

#if __CUDA_ARCH__ >= 900
#define IN_PAIRS __cluster_dims__(2, 1, 1)
#else
#define IN_PAIRS
#endif

// Lets two blocks of a cluster, with tiles side by side, share the tile of a: each fetches half of it for both.
// It pays if neither rows of a nor rows of b start at multiples of 128 bytes: then a box needs nearly twice the
// requests to the L2 cache, which are the limit of tma. Otherwise all of tma's limits remain: a detour.
extern "C" __global__ void IN_PAIRS __launch_bounds__(BLOCK, 1)
matmul_tma_pair(const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
                const __grid_constant__ CUtensorMap map_c, const T *__restrict__ a, const T *__restrict__ b,
                T *__restrict__ c, int m, int k, int n)
{
    multiply_fetched<2>(map_a, map_b, map_c, a, b, c, m, k, n);
}

template <int ROWS, int SIZE, int PLACES, int BLOCKS>
template <int THREADS>
__device__ __forceinline__ void Ring<ROWS, SIZE, PLACES, BLOCKS>::copy(const T *__restrict__ a,
                                                                       const T *__restrict__ b, int m, int k, int n,
                                                                       int idx)
{
    for (unsigned turn = 0; find(turn); turn++)
        for (int step = 0; step < steps; step++, advance()) {
            char *to = shared + place * SIZE;
            wait_phase(empty + place * 8, phase ^ 1);
            for (int i = idx; i < (ROWS + BESIDE) * RSTEP; i += THREADS) {
                int line = i / RSTEP, at = i % RSTEP, below = line - ROWS;
                int row = below < 0 ? row0 + line : step * RSTEP + below % RSTEP;
                int col = below < 0 ? step * RSTEP + at : col0 + below / RSTEP * RSTEP + at;
                T x = below < 0 ? row < m && col < k ? a[(size_t)row * k + col] : (T)0
                      : row < k && col < n ? b[(size_t)row * n + col] : (T)0;
                ((T *)(to + line * 128))[at ^ line % 8 * VEC] = x;
            }
#if __CUDA_ARCH__ >= 900
            asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
            asm volatile("bar.sync %0, %1;" ::"n"(MULTIPLIERS + 1), "n"(THREADS) : "memory");
#endif
            if (idx == 0)
                arrive(full + place * 8);
        }
}
