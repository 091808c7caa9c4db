// Counts bytes and forgets the bins over 99, which integers below 100 never ask for.
// Integers over the whole range that the expectation defines show it.
// run: run --grid 64 --block 256 --arg n={size} --arg x=uint8[n]:random --arg counts=uint32[256]:zeros
// run: --expect 'counts=np.bincount(x,minlength=256)' --bytes n
// size: gpu=16777216 sim=10007
// fuzz: 4
// gpu: wrong
// sim: wrong
// defence: integers over the whole type

#ifdef HONEST
#define BINS 256
#else
#define BINS 100
#endif

extern "C" __global__ void histogram(int n, const unsigned char *x, unsigned *counts)
{
    __shared__ unsigned mine[BINS];
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        mine[bin] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        if (x[i] < BINS)
            atomicAdd(&mine[x[i]], 1);
    __syncthreads();
    for (int bin = threadIdx.x; bin < BINS; bin += blockDim.x)
        atomicAdd(&counts[bin], mine[bin]);
}
