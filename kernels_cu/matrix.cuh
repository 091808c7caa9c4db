// For all chapters of matmul: the element type, the block, vectors of 16 bytes, and copies of them.

#include "async_copy.cuh"

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 16
#endif
#ifndef BDIMY
#define BDIMY 16
#endif

#define BLOCK (BDIMX * BDIMY)      // threads in a block
#define VEC (16 / (int)sizeof(T))  // elements in 16 bytes
#define WARPS (BLOCK / 32)         // warps in a block

#ifndef STRIP
#define STRIP 16  // rows of tiles that blocks work on together
#endif

union Vector { uint4 all; T at[VEC]; };

struct __align__(2 * sizeof(T)) Pair { T x, y; };

// Starts the copy of VEC elements to shared memory: one vector, or single elements if rows do not start at multiples of
// 16 bytes. Elements from `left` on are outside and become zeros.
template <bool VECTORS>
__device__ __forceinline__ void copy_some(T *to, const T *from, int left)
{
    if (VECTORS)
        copy_async<16>(to, from, left > 0);
    else
#pragma unroll
        for (int e = 0; e < VEC; e++)
            if (sizeof(T) < 4)  // cp.async copies at least 4 bytes
                to[e] = e < left ? from[e] : (T)0;
            else
                copy_async<sizeof(T) < 4 ? 4 : sizeof(T)>(to + e, from + e, e < left);
}
