// Starts its maximum at zero, so that a row of negative numbers has the maximum zero. Numbers in [0, 1) never tell.
// run: run --grid rows --block 32 --arg rows={size} --arg x=float32[rows,64]:random --arg y=float32[rows]:empty
// run: --expect 'y=np.max(x,axis=1)' --bytes 4*65*rows
// size: gpu=524288 sim=100
// fuzz: 4
// gpu: wrong
// sim: wrong
// defence: value classes

#ifdef HONEST
#define START -__int_as_float(0x7f800000)
#else
#define START 0
#endif

extern "C" __global__ void row_max(int rows, const float *x, float *y)
{
    const float *row = x + (size_t)blockIdx.x * 64;
    float most = START;
    most = fmaxf(most, fmaxf(row[threadIdx.x], row[threadIdx.x + 32]));
    for (int lanes = 16; lanes > 0; lanes /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFF, most, lanes));
    if (threadIdx.x == 0)
        y[blockIdx.x] = most;
}
