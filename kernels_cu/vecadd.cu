// Vector addition: c[i] = a[i] + b[i] for n elements of type T.
//
// Each element of a and of b is read once and each of c written once: 3 * n * sizeof(T) bytes for n additions.
// An H200 adds 84 times as fast as its memory delivers: 132 multiprocessors * 128 floats * 1.98 GHz = 33.5e12 sums a
// second, against 4.8e12 bytes a second / 12 bytes = 0.4e12. So the only question is how many bytes are in flight at
// once: memory with a latency of 600 ns that moves 4.8 TB/s needs about 3 MB in flight, over 20 KB on each
// multiprocessor; in practice it needs twice that.
//
// Read the ladder from top to bottom: each comment names what changes, what that removes and what remains.
// BDIMX is the number of threads of a block. Indices are size_t because the grid may reach beyond 2^32.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 256
#endif

#define VEC (16 / (int)sizeof(T))  // elements in 16 bytes

// Adds one element a thread; the threads beyond n do nothing.
// Neighbouring threads touch neighbouring elements, so every sector that is fetched is used. What remains: a thread
// has two loads of sizeof(T) bytes under way, ends, and leaves the next ones to a new block.
extern "C" __global__ void vecadd_naive(const T *a, const T *b, T *c, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    if (i < n)
        c[i] = a[i] + b[i];
}

// Lets a fixed number of threads stride through the arrays, so that any grid covers any n.
// Blocks start once instead of n / BDIMX times. What remains: every access still moves sizeof(T) bytes, and a
// thread waits for its loads before it issues the next ones.
extern "C" __global__ void vecadd_grid_stride(const T *a, const T *b, T *c, int n)
{
    size_t i = (size_t)blockIdx.x * BDIMX + threadIdx.x;

    for (; i < n; i += (size_t)gridDim.x * BDIMX)
        c[i] = a[i] + b[i];
}

union Vector { uint4 all; T at[VEC]; };  // 16 bytes

// Moves 16 bytes an access, VEC elements: one vector a thread, as many threads as there are vectors.
// For float a quarter of the loads and stores, and four times the bytes under way in each. The elements behind the
// last whole vector go one by one. What remains is the memory itself.
extern "C" __global__ void vecadd_vector(const T *a, const T *b, T *c, int n)
{
    size_t i = ((size_t)blockIdx.x * BDIMX + threadIdx.x) * VEC;

    if (i + VEC <= n) {
        Vector x = {*(const uint4 *)(a + i)};
        Vector y = {*(const uint4 *)(b + i)};
#pragma unroll
        for (int k = 0; k < VEC; k++)
            x.at[k] += y.at[k];
        *(uint4 *)(c + i) = x.all;
    } else
        for (; i < n; i++)
            c[i] = a[i] + b[i];
}
