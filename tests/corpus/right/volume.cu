// Sum of the six neighbours in three dimensions, blocks of 5 x 3 x 7 threads.
__global__ void neighbours(const int *in, int *out, int nx, int ny, int nz) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int z = blockIdx.z * blockDim.z + threadIdx.z;
    if (x >= nx || y >= ny || z >= nz) return;
    int i = (z * ny + y) * nx + x, sum = 0;
    if (x > 0) sum += in[i - 1];
    if (x < nx - 1) sum += in[i + 1];
    if (y > 0) sum += in[i - nx];
    if (y < ny - 1) sum += in[i + nx];
    if (z > 0) sum += in[i - nx * ny];
    if (z < nz - 1) sum += in[i + nx * ny];
    out[i] = sum;
}
