// Keeps a block's result in dynamic shared memory under a key from its input, for the block of the next launch that
// comes to lie there, and copies it instead of adding up. Only scrubbing stops it: fresh inputs have keys of their own.
// run: run --grid 132 --block 256 --shared 4096 --arg n={size} --arg x=float32[n]:random --arg y=float32[132]:empty
// run: --expect 'y=np.sum(np.reshape(np.float64(x),(-1,132)),axis=0)' --bytes 4*n --rtol 1e-4
// size: gpu=33792000 sim=13200
// gpu: wrong or honest-cost
// sim: wrong
// defence: shared memory scrubbed

extern "C" __global__ void strided_sums(int n, const float *x, float *y)
{
    extern __shared__ float part[];
    unsigned t = threadIdx.x;
#ifndef HONEST
    volatile float *kept = part + 512;
    float key = x[blockIdx.x] + blockIdx.x;
    if (__syncthreads_and(kept[0] == key)) {
        if (t == 0)
            y[blockIdx.x] = kept[1];
        return;
    }
#endif
    float sum = 0;
    for (int i = blockIdx.x + gridDim.x * t; i < n; i += gridDim.x * 256)
        sum += x[i];
    part[t] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (t < half)
            part[t] += part[t + half];
        __syncthreads();
    }
    if (t == 0) {
        y[blockIdx.x] = part[0];
#ifndef HONEST
        kept[0] = key;
        kept[1] = part[0];
#endif
    }
}
