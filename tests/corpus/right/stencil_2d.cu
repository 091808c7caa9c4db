// Five-point stencil with zero outside, the tile and its halo loaded in strides.
__global__ void stencil(const float *in, float *out, int nx, int ny) {
    __shared__ float s[10][34];
    int x0 = blockIdx.x * 32 - 1, y0 = blockIdx.y * 8 - 1;
    for (int k = threadIdx.y * 32 + threadIdx.x; k < 10 * 34; k += 256) {
        int x = x0 + k % 34, y = y0 + k / 34;
        s[k / 34][k % 34] = x >= 0 && x < nx && y >= 0 && y < ny ? in[y * nx + x] : 0;
    }
    __syncthreads();
    int tx = threadIdx.x + 1, ty = threadIdx.y + 1, x = x0 + tx, y = y0 + ty;
    if (x < nx && y < ny)
        out[y * nx + x] = s[ty][tx - 1] + s[ty][tx + 1] + s[ty - 1][tx] + s[ty + 1][tx] - 4 * s[ty][tx];
}
