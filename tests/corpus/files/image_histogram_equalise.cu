// A look-up table from a cumulated histogram.
// run: -k apply_lut -g 4 -b 64 --arg 'pixels=uint8[256]:random' --arg 'lut=uint8[256]:arange' --arg n=256 --expect 'pixels=pixels0'
// expect: ok
__global__ void apply_lut(unsigned char *pixels, const unsigned char *__restrict__ lut, int n) {
    __shared__ unsigned char table[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) table[i] = lut[i];
    __syncthreads();
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) pixels[i] = table[pixels[i]];
}
