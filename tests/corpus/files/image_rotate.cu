// A rotation by ninety degrees of packed pixels.
// run: -k 'rotate90<uchar3>' -g '1,1' -b '16,16' --arg 'in=uint8[10,12,3]:random' --arg 'out=uint8[12,10,3]:empty' --arg w=12
//      --arg h=10 --expect 'out=np.rot90(in,-1)'
// expect: ok
template <typename Pixel> __global__ void rotate90(const Pixel *in, Pixel *out, int w, int h) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < w && y < h) out[x * h + (h - 1 - y)] = in[y * w + x];
}
