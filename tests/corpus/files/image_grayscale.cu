// Pixels of four bytes to one.
// run: -k rgba_to_grey -g '2,2' -b '16,16' --arg 'rgba=uint8[20,30,4]:random' --arg 'grey=uint8[20,30]:empty'
//      --arg rows=20 --arg cols=30 --expect 'grey=np.uint8(0.299*rgba[:,:,0]+0.587*rgba[:,:,1]+0.114*rgba[:,:,2])' --atol 1
// expect: ok
__global__ void rgba_to_grey(const uchar4 *const rgba, unsigned char *const grey, int rows, int cols) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= cols || y >= rows) return;
    uchar4 p = rgba[y * cols + x];
    grey[y * cols + x] = .299f * p.x + .587f * p.y + .114f * p.z;
}
