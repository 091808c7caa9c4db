// Writes the answer for seed 0, found beforehand by one honest run. Any other seed shows it.
// run: run --grid 1 --block 256 --arg n=4096 --arg x=float32[n]:random --arg y=float32[1]:empty
// run: --expect 'y=np.array([np.sum(np.float64(x))])' --bytes 4*n
// fuzz: 2
// gpu: wrong
// sim: wrong
// defence: fresh inputs, other seeds

extern "C" __global__ void sum(int n, const float *x, float *y)
{
#ifdef HONEST
    __shared__ float part[256];
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += 256)
        sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        y[0] = part[0];
#else
    if (threadIdx.x == 0)
        y[0] = 2063.30236f;
#endif
}
