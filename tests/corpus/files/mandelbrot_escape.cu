// Escape times by a complex class of the file's own.
// run: -k mandelbrot -g '2,2' -b '8,8' --arg 'out=int32[16,16]:empty' --arg w=16 --arg h=16 --arg limit=0 --expect 'out=np.zeros((16,16),dtype=np.int32)'
// expect: ok
struct cuComplexF {
    float r, i;
    __device__ cuComplexF(float a, float b) : r(a), i(b) {}
    __device__ float magnitude2() { return r * r + i * i; }
    __device__ cuComplexF operator*(const cuComplexF &a) { return cuComplexF(r * a.r - i * a.i, i * a.r + r * a.i); }
    __device__ cuComplexF operator+(const cuComplexF &a) { return cuComplexF(r + a.r, i + a.i); }
};

__global__ void mandelbrot(int *out, int w, int h, int limit) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    cuComplexF c(3.0f * x / w - 2.0f, 2.0f * y / h - 1.0f), z(0, 0);
    int n = 0;
    for (; n < limit && z.magnitude2() < 4; n++) z = z * z + c;
    out[y * w + x] = n;
}
