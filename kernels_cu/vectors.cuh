// Vectors of 16 bytes, and a tile that holds them transposed: shared by transpose_fast.cu and transpose_ragged.cu.
//
// A thread reads 16 bytes of each of four rows and turns them in registers. The four elements of one column are a
// quad: one vector of floats, a word of four bytes, two vectors of doubles.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 32
#endif
#ifndef BDIMY
#define BDIMY 8
#endif

#define BLOCK (BDIMX * BDIMY)             // threads in a block
#define VEC (16 / (int)sizeof(T))         // elements in 16 bytes
#define BANK_ROW (128 / (int)sizeof(T))   // elements in one row of the 32 banks

union Vector { uint4 all; uint2 half[2]; unsigned word[4]; T at[VEC]; };  // 16 bytes along a row
union Quad { Vector part[sizeof(T) > 4 ? 2 : 1]; T at[4]; };              // four elements down a column

// Returns the place of vector v of row x of the transposed tile, whose rows have PITCH vectors.
// Eight vectors span the 32 banks. XOR with the row exchanges them, so that quads down a column and vectors along a row
// both spread over all banks. Vectors 0 to 7 of float rows:
//
//     row 0   0 1 2 3 4 5 6 7      row 1   1 0 3 2 5 4 7 6      row 4   5 4 7 6 1 0 3 2 (4 and 4 / VEC both count)
//
// If several rows of the tile share a row of the banks, the number of that row is used instead.
template <unsigned PITCH>
__device__ __forceinline__ unsigned place(unsigned x, unsigned v)
{
    if (PITCH >= 8)
        return x * PITCH + v / 8 * 8 + (v ^ x ^ x / VEC) % 8;
    unsigned at = x * PITCH + v, row = at / 8;
    return row * 8 + (at ^ row ^ row / 8) % 8;
}

// Stores the quad with number `quad` of row x in the tile: a whole vector, a part of a vector, or two vectors.
template <unsigned PITCH>
__device__ __forceinline__ void store_quad(Vector *tile, unsigned x, unsigned quad, const Quad &q)
{
    Vector &to = tile[place<PITCH>(x, quad * 4 / VEC)];
    if (sizeof(T) == 1)
        to.word[quad % 4] = q.part[0].word[0];
    else if (sizeof(T) == 2)
        to.half[quad % 2] = q.part[0].half[0];
    else
        to.all = q.part[0].all;
    if (sizeof(T) == 8)
        tile[place<PITCH>(x, quad * 2 + 1)].all = q.part[sizeof(T) > 4].all;
}

// Transposes 4 x 4 bytes at a time, in two steps of four byte permutations: word w of row r becomes the quad of column
// 4 w + r. Element by element it would take twelve permutations.
__device__ __forceinline__ void turn_bytes(Vector row[4])
{
#pragma unroll
    for (int w = 0; w < 4; w++) {
        unsigned a = row[0].word[w], b = row[1].word[w], c = row[2].word[w], d = row[3].word[w];
        unsigned ab01 = __byte_perm(a, b, 0x5140), cd01 = __byte_perm(c, d, 0x5140);  // a0 b0 a1 b1
        unsigned ab23 = __byte_perm(a, b, 0x7362), cd23 = __byte_perm(c, d, 0x7362);
        row[0].word[w] = __byte_perm(ab01, cd01, 0x5410);
        row[1].word[w] = __byte_perm(ab01, cd01, 0x7632);
        row[2].word[w] = __byte_perm(ab23, cd23, 0x5410);
        row[3].word[w] = __byte_perm(ab23, cd23, 0x7632);
    }
}

// Transposes the first `width` columns of four rows, and stores them in the tile as the quads with number `quad`.
template <unsigned PITCH>
__device__ __forceinline__ void store_columns(Vector *tile, unsigned col, unsigned quad, Vector row[4], unsigned width)
{
    if (width > 1 && sizeof(T) == 1)
        turn_bytes(row);
#pragma unroll
    for (unsigned c = 0; c < width; c++) {
        Quad q;
        if (width > 1 && sizeof(T) == 1)
            q.part[0].word[0] = row[c % 4].word[c / 4];
        else
            for (int r = 0; r < 4; r++)
                q.at[r] = row[r].at[c];
        store_quad<PITCH>(tile, col + c, quad, q);
    }
}

#ifndef FETCH
#define FETCH 128  // the host sets 256 if rows of `in` are longer than 256 bytes and not a multiple of 256
#endif

// Reads 16 bytes of a row (VECTORS), or one element. With HINTS, a read that misses the L2 cache brings the aligned
// FETCH bytes around it (PTX: ld.level::prefetch_size, from compute capability 8.0 on).
template <bool HINTS, bool VECTORS>
__device__ __forceinline__ void fetch(Vector &to, const T *from)
{
#if __CUDA_ARCH__ >= 800
#define IN_WORDS(x) #x
#define LOAD(bytes) "ld.global.nc.L2::" IN_WORDS(bytes) "B"
    if (HINTS && VECTORS)
        asm(LOAD(FETCH) ".v4.u32 {%0, %1, %2, %3}, [%4];"
            : "=r"(to.all.x), "=r"(to.all.y), "=r"(to.all.z), "=r"(to.all.w) : "l"(from));
    else if (HINTS && sizeof(T) == 8)
        asm(LOAD(FETCH) ".v2.u32 {%0, %1}, [%2];" : "=r"(to.half[0].x), "=r"(to.half[0].y) : "l"(from));
    else if (HINTS && sizeof(T) == 4)
        asm(LOAD(FETCH) ".u32 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
    else if (HINTS && sizeof(T) == 2)
        asm(LOAD(FETCH) ".u16 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
    else if (HINTS)
        asm(LOAD(FETCH) ".u8 %0, [%1];" : "=r"(to.word[0]) : "l"(from));
    else
#endif
    if (VECTORS)
        to.all = *(const uint4 *)from;
    else
        to.at[0] = *from;
}
