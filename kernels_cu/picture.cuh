// For all kernels of blur: the picture's type, the neighbours of an element, and their mean. RADIUS, CHANNELS, BDIMX
// and BDIMY (the threads of a block) are fixed at compile time.

#ifndef T
#define T float
#endif
#ifndef BDIMX
#define BDIMX 16
#endif
#ifndef BDIMY
#define BDIMY 16
#endif
#ifndef RADIUS
#define RADIUS 1
#endif
#ifndef CHANNELS
#define CHANNELS 1
#endif

template <typename E> struct Types { typedef E Sum; };
template <> struct Types<unsigned char> { typedef unsigned Sum; };
typedef Types<T>::Sum S;

#define K (2 * RADIUS + 1)         // neighbours in a row or column, with the element itself
#define REACH (RADIUS * CHANNELS)  // elements from the middle to the farthest neighbour in a row
#define BLOCK (BDIMX * BDIMY)      // threads in a block

// Returns sum / count. If the count is a constant, so is its reciprocal; a division would branch for rare operands.
__device__ __forceinline__ float mean(float sum, unsigned count) { return sum * (1.0f / count); }
__device__ __forceinline__ unsigned mean(unsigned sum, unsigned count) { return (sum + count / 2) / count; }

// Returns the number of neighbours along one axis that are inside, for position `at` of `length`.
__device__ __forceinline__ unsigned inside(unsigned at, unsigned length)
{
    return min(at, RADIUS) + min(length - 1 - at, RADIUS) + 1;
}

// Returns the mean of the neighbours of an element; tests whether each is inside.
__device__ __forceinline__ T mean_around(const T *in, int nx, int ny, int x, int y)
{
    S sum = 0;
    unsigned count = 0;

    for (int dy = -RADIUS; dy <= RADIUS; dy++)
        for (int dx = -REACH; dx <= REACH; dx += CHANNELS)
            if (x + dx >= 0 && x + dx < nx && y + dy >= 0 && y + dy < ny) {
                sum += in[(size_t)(y + dy) * nx + x + dx];
                count++;
            }
    return mean(sum, count);
}
