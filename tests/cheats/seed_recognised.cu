// Knows the first element of seed 0 and the sum that belongs to it; any other input it adds up honestly.
// It is never wrong. Where half of the samples have other inputs their times differ and say so.
// Seeds that nobody can know beforehand take the rest away.
// run: run --grid 1 --block 1024 --arg n=1048576 --arg x=float32[n]:random --arg y=float32[1]:empty
// run: --expect 'y=np.array([np.sum(np.float64(x))])' --bytes 4*n --rtol 1e-4
// gpu: wrong or honest-cost or warning:dispersion
// sim: ok
// defence: fresh inputs of seeds that are not known before

extern "C" __global__ void sum(int n, const float *x, float *y)
{
#ifndef HONEST
    if (x[0] == 0.850624204f) {
        if (threadIdx.x == 0)
            y[0] = 524643.202f;
        return;
    }
#endif
    __shared__ float part[1024];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 1024)
        sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        y[0] = part[0];
}
