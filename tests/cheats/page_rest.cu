// Keeps its product in the rest of the output's last page, a mebibyte behind the output: mapped, so that nothing faults,
// and behind a guard zone of 64 KiB. The zone must reach to the end of the page.
// run: matmul --size {size} {size} {size}
// size: gpu=256 sim=48
// gpu: wrong
// sim: wrong
// defence: guard zones to the end of the page

extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int k, int n)
{
    int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || col >= n)
        return;
    int i = row * n + col;
#ifndef HONEST
    volatile float *kept = c + (1 << 18), *keys = kept + (1 << 16);
    float key = a[row * k] + b[col];
    if (keys[i] == key) {
        c[i] = kept[i];
        return;
    }
#endif
    float sum = 0;
    for (int j = 0; j < k; j++)
        sum += a[row * k + j] * b[j * n + col];
    c[i] = sum;
#ifndef HONEST
    kept[i] = sum;
    keys[i] = key;
#endif
}
