// Magnification by two, bilinear.
// run: -k upscale -g '2,2' -b '16,16' --arg 'in=float32[8,8]:ones' --arg 'out=float32[16,16]:empty' --arg n=8 --expect 'out=np.ones((16,16))'
// expect: ok
__device__ __host__ inline float mix(float a, float b, float t) { return a + (b - a) * t; }

__global__ void upscale(const float *in, float *out, int n) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x >= 2 * n || y >= 2 * n) return;
    float u = fminf(fmaxf(0.5f * x - 0.25f, 0), n - 1), v = fminf(fmaxf(0.5f * y - 0.25f, 0), n - 1);
    int i = floorf(u), j = floorf(v), i1 = min(i + 1, n - 1), j1 = min(j + 1, n - 1);
    out[y * 2 * n + x] = mix(mix(in[j * n + i], in[j * n + i1], u - i), mix(in[j1 * n + i], in[j1 * n + i1], u - i), v - j);
}
