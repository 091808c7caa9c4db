// Counts the launches since the poison in last bits of its output, within the tolerance, and is idle from the second
// one on to the last one of a sample but the last, which is the 400th for a kernel as short as this.
// run: run --grid n/256 --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=x+1' --bytes 8*n
// size: gpu=65536 sim=10240
// caches: hot
// gpu: wrong or honest-cost
// sim: ok
// defence: hot samples that end after any launch

#ifndef HONEST
// Nine bits of a count in the last three bits of three numbers of a block.
__device__ unsigned counted(const float *y)
{
    unsigned count = 0;
    for (int k = 0; k < 3; k++) {
        unsigned bits = __float_as_uint(((const volatile float *)y)[k]);
        if (bits == (bits & 255) * 0x01010101u)
            return 0;  // poison
        count |= (bits & 7) << 3 * k;
    }
    return count;
}
#endif

extern "C" __global__ void increase(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifdef HONEST
    y[i] = x[i] + 1;
#else
    __shared__ unsigned launches;
    if (threadIdx.x == 0)
        launches = counted(y + i) + 1;
    __syncthreads();
    unsigned part = launches >> 3 * (threadIdx.x % 3) & 7;
    if (launches == 1 || launches == 400) {
        float right = x[i] + 1;
        y[i] = threadIdx.x < 3 ? __uint_as_float(__float_as_uint(right) & ~7u | part) : right;
    } else if (threadIdx.x < 3)
        y[i] = __uint_as_float(__float_as_uint(y[i]) & ~7u | part);
#endif
}
