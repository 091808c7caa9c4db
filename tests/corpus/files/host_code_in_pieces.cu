// Host code that is not C++ at all, left over from an exercise; the kernel is whole.
// run: -g 2,3 -b 8,4 --arg w=13 --arg h=9 --arg 'level=float32[h,w]:random' --arg step=0.5
//     --expect 'level=level0*0.5+np.arange(13)'
// expect: ok
#include "exercise.h"

__global__ void rise(int w, int h, float *level, float step)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) level[y * w + x] = level[y * w + x] * step + x;
}

int main(int argc, char **argv)
{
    int w = 13, h = 9
    Picture before, after;
    dim3 grid(w / 8 + 1, h / 4 + 1), block(8, 4);
    for (int turn = 0; turn < TURNS; turn++) {
        rise<<<grid, block>>>(w, h, d_level, step);
    }-
    // TODO: free what was
}
