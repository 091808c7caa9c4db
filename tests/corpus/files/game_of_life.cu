// Life on a torus, cells in bytes.
// run: -k step -g '2,2' -b '16,16' --arg 'now=uint8[24,24]:ones' --arg 'next=uint8[24,24]:empty' --arg n=24
//      --expect 'next=np.uint8(np.zeros((24,24)))'
// expect: ok
#include <stdbool.h>
#include <getopt.h>

__device__ int alive(const unsigned char *cells, int x, int y, int n) { return cells[((y + n) % n) * n + (x + n) % n]; }

__global__ void step(const unsigned char *now, unsigned char *next, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= n || y >= n) return;
    int around = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++)
            if (dx || dy) around += alive(now, x + dx, y + dy, n);
    next[y * n + x] = around == 3 || (around == 2 && now[y * n + x]);
}
