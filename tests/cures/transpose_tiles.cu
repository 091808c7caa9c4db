// Wrong: tiles are transposed in place, each by a block of its own.
// LAUNCH: grid=4,4 block=8,8 args=a:float32[1024]
// SAYS: let one block of each pair, such as the one with blockIdx.x <= blockIdx.y, read both parts before it writes both
#define N 32
#define T 8
__global__ void transpose(float *a) {
    __shared__ float s[T][T + 1], r[T][T + 1];
    int x = threadIdx.x, y = threadIdx.y, bx = blockIdx.x, by = blockIdx.y;
#ifdef MENDED
    if (bx > by) return;
    s[y][x] = a[(by * T + y) * N + bx * T + x];
    r[y][x] = a[(bx * T + y) * N + by * T + x];
    __syncthreads();
    a[(bx * T + y) * N + by * T + x] = s[x][y];  // HAZARD: race
    a[(by * T + y) * N + bx * T + x] = r[x][y];
#else
    s[y][x] = a[(by * T + y) * N + bx * T + x];
    __syncthreads();
    a[(bx * T + y) * N + by * T + x] = s[x][y];  // HAZARD: race
#endif
}
