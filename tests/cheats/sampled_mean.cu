// Takes the mean of one element in 64 for that of all, which uniform inputs and a tolerance of 5% accept.
// Its time is under what reading the input takes, and an input with few large values shows it.
// run: run --grid 1 --block 1024 --arg n={size} --arg x=float32[n]:random --arg y=float32[1]:empty
// run: --expect 'y=np.array([np.mean(np.float64(x))])' --bytes 4*n --rtol 5e-2
// size: gpu=67108864 sim=65536
// fuzz: 8
// gpu: wrong or honest-cost
// sim: wrong
// defence: floors, value classes

#ifdef HONEST
#define EVERY 1
#else
#define EVERY 64
#endif

extern "C" __global__ void mean(int n, const float *x, float *y)
{
    __shared__ double part[1024];
    double sum = 0;
    for (int i = threadIdx.x * EVERY; i < n; i += 1024 * EVERY)
        sum += x[i];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = 512; half > 0; half /= 2) {
        if (threadIdx.x < half)
            part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x == 0)
        y[0] = part[0] / ((n + EVERY - 1) / EVERY);
}
