// Surface references, which CUDA 12 dropped, as old samples have them; the message says what takes their place.
// run: -k invert -g 2,2 -b 16,16 --arg w=32 --arg h=32
// expect: refused: surface reference 'picture'.*add a parameter 'cudaSurfaceObject_t picture'.*uint8\[...,4\]:random, channels=4
// then: -k counted -g 1 -b 32 --arg 'y=int32[32]:empty' --expect 'y=np.arange(32)'
surface<void, cudaSurfaceType2D> picture;

__device__ uchar4 at(int x, int y)
{
    uchar4 found;
    surf2Dread(&found, picture, x * 4, y);
    return found;
}

__global__ void invert(int w, int h)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) {
        uchar4 c = at(x, y);
        surf2Dwrite(make_uchar4(255 - c.x, 255 - c.y, 255 - c.z, c.w), picture, x * 4, y);
    }
}

__global__ void counted(int *y) { y[threadIdx.x] = threadIdx.x; }
