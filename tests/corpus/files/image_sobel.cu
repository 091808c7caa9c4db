// Sobel's operator with coefficients in constant memory.
// run: -g '2,2' -b '16,16' --arg 'in=uint8[h,w]:ones' --arg 'out=uint8[h,w]:zeros' --arg w=32 --arg h=24 --expect 'out=np.uint8(np.zeros((24,32)))'
// expect: ok
__constant__ int gx[9] = {-1, 0, 1, -2, 0, 2, -1, 0, 1};
__constant__ int gy[9] = {-1, -2, -1, 0, 0, 0, 1, 2, 1};

__global__ void sobel(const unsigned char *in, unsigned char *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) return;
    int sx = 0, sy = 0;
    for (int k = 0; k < 9; k++) {
        int p = in[(y + k / 3 - 1) * w + x + k % 3 - 1];
        sx += gx[k] * p;
        sy += gy[k] * p;
    }
    out[y * w + x] = min(255, (int)sqrtf((float)(sx * sx + sy * sy)));
}
