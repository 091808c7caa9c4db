// Keeps its product in the arrays of another place that the tool samples at, which it expects some pages further on,
// and copies it: what lies there is poisoned only before that place has its turn.
// run: matmul --size {size} {size} {size}
// size: gpu=256 sim=48
// gpu: wrong or failed
// sim: wrong
// defence: other places looked at

extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int k, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;
    int i = row * n + col;
#ifndef HONEST
    // Five arrays of a page each at a place: two factors, the product, and two that the tool copies.
    volatile float *kept = c + (10 << 18);
    unsigned tag = (__float_as_uint(a[row * k]) * 31 + __float_as_uint(b[col])) >> 7 & 15;
    float found = kept[i];
    if (found > 0 && found < k && (__float_as_uint(found) & 15) == tag) {
        c[i] = found;
        return;
    }
#endif
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += a[row * k + j] * b[j * n + col];
    c[i] = sum;
#ifndef HONEST
    kept[i] = __uint_as_float(__float_as_uint(sum) & ~15u | tag);
#endif
}
