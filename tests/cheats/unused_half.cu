// Keeps sums in the half of an input that the expectation does not read, under a key, and copies them.
// What is not const is set back before every sample, read by an expectation or not.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n,64]:random --arg spare=float32[2*n]:random
// run: --arg y=float32[n]:empty --expect 'y=np.sum(x,axis=1,dtype=np.float64)' --bytes 4*64*n
// size: gpu=262144 sim=1000
// gpu: wrong or honest-cost
// sim: ok
// defence: every array that is not const set back before every sample

extern "C" __global__ void sums(int n, const float *x, float *spare, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const float *row = x + 64 * (size_t)i;
#ifndef HONEST
    if (spare[n + i] == -1 - row[0]) {
        y[i] = spare[i];
        return;
    }
#endif
    float sum = 0;
    for (int j = 0; j < 64; j++)
        sum += row[j];
    y[i] = sum;
#ifndef HONEST
    spare[i] = sum;
    spare[n + i] = -1 - row[0];
#else
    spare[i] = 0;
#endif
}
