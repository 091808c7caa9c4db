// Writes 0.5 for the mean of numbers in [0, 1), which a tolerance of 1% accepts without a look at the input.
// Its time is under what reading the input takes at peak bandwidth, and other values of the input show it.
// run: run --grid 1 --block 1024 --arg n={size} --arg x=float32[n]:random --arg y=float32[1]:empty
// run: --expect 'y=np.array([np.mean(np.float64(x))])' --bytes 4*n --rtol 1e-2
// size: gpu=67108864 sim=4096
// fuzz: 4
// gpu: wrong
// sim: wrong
// defence: floors, value classes

extern "C" __global__ void mean(int n, const float *x, float *y)
{
#ifdef HONEST
    __shared__ double part[1024];
    double sum = 0;
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
        y[0] = part[0] / n;
#else
    if (threadIdx.x == 0)
        y[0] = 0.5f;
#endif
}
