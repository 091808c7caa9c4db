// What all kernels of solve begin with: the augmented matrix ab, and the comparison of candidates for a pivot.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 32
#endif
#ifndef BDIMY
#define BDIMY 8
#endif

#define BLOCK (BDIMX * BDIMY)          // threads in a block
#define LINE (128 / (int)sizeof(T))    // elements in the 128 bytes of a cache line

// A candidate for the pivot: the element's absolute value and its row. Of equal candidates the first one is chosen.
struct Peak { T size; int at; };

__device__ __forceinline__ Peak larger(Peak p, Peak q)
{
    return q.size > p.size || (q.size == p.size && q.at < p.at) ? q : p;
}

// Copies a and b side by side into ab, so that every run starts from the same matrix, and marks all rows as unused.
// Elements behind column n, up to the pitch, become 0. `pivot` lists the rows in the order of their use; `place` is the
// place of each row in that list.
extern "C" __global__ void solve_augment(const T *a, const T *b, T *ab, int *order, int *pivot, int *place, int n,
                                         int pitch)
{
    for (size_t row = (size_t)blockIdx.y * BDIMY + threadIdx.y; row < n; row += (size_t)gridDim.y * BDIMY) {
        for (size_t c = (size_t)blockIdx.x * BDIMX + threadIdx.x; c < pitch; c += (size_t)gridDim.x * BDIMX)
            ab[row * pitch + c] = c < n ? a[row * n + c] : c == n ? b[row] : (T)0;
        if (blockIdx.x == 0 && threadIdx.x == 0) {
            order[row] = -1;
            pivot[row] = row;
            place[row] = row;
        }
    }
}
