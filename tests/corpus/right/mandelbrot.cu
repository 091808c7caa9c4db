// Iterations until escape: threads of a warp leave the loop at different times.
__global__ void mandelbrot(int *out, int nx, int ny, int limit) {
    int px = blockIdx.x * blockDim.x + threadIdx.x, py = blockIdx.y * blockDim.y + threadIdx.y;
    if (px >= nx || py >= ny) return;
    double cx = -2.0 + 3.0 * px / nx, cy = -1.0 + 2.0 * py / ny, x = 0, y = 0;
    int k = 0;
    while (k < limit && __dadd_rn(__dmul_rn(x, x), __dmul_rn(y, y)) <= 4.0) {
        double next = __dadd_rn(__dsub_rn(__dmul_rn(x, x), __dmul_rn(y, y)), cx);
        y = __dadd_rn(__dmul_rn(__dmul_rn(2.0, x), y), cy);
        x = next;
        k++;
    }
    out[py * nx + px] = k;
}
