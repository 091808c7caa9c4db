// A float32 product by byte products: three slices of seven bits of each number, six products of slices, each four at a
// time. Within the tolerance, and less than float32: the code tells.
// run: matmul --size {size} {size} {size}
// size: gpu=512 sim=48
// gpu: wrong or ok, arithmetic:int8, warning:arithmetic
// sim: wrong or ok, arithmetic:int8, warning:arithmetic
// defence: arithmetic named

#ifndef HONEST
__device__ void slice(float x, int at, int packed[3])
{
    int whole = __float2int_rn(x * 2097152.0f);  // 2^21
    for (int s = 0; s < 3; s++)
        packed[s] |= (whole >> 14 - 7 * s & 127) << 8 * at;
}
#endif

extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int k, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;
#ifdef HONEST
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += a[row * k + j] * b[j * n + col];
    c[row * n + col] = sum;
#else
    int sums[5] = {};
    for (int j = 0; j < k; j += 4) {
        int left[3] = {}, right[3] = {};
        for (int at = 0; at < 4 && j + at < k; at++) {
            slice(fminf(a[row * k + j + at], 0.9999995f), at, left);
            slice(fminf(b[(j + at) * n + col], 0.9999995f), at, right);
        }
        for (int s = 0; s < 3; s++)
            for (int t = 0; t < 3; t++)
                sums[s + t] = __dp4a(left[s], right[t], sums[s + t]);
    }
    double sum = 0;
    for (int s = 0; s < 5; s++)
        sum += ldexp((double)sums[s], -14 - 7 * s);
    c[row * n + col] = (float)sum;
#endif
}
