// Fills a table in its first launch and looks up in it ever after, so that the time leaves out the filling.
// The honest twin's tables are constants of the module: no state, and no warning.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=uint8[n]:random --arg y=int32[n]:empty
// run: --expect 'y=(np.int32(x)%16)**2+np.int32(x)%4' --bytes 5*n
// size: gpu=8388608 sim=10007
// gpu: wrong or honest-cost, warning:state, state:squares
// sim: ok, state:squares
// defence: module variables set back

#ifdef HONEST
__device__ const int squares[16] = {0, 1, 4, 9, 16, 25, 36, 49, 64, 81, 100, 121, 144, 169, 196, 225};
#else
__device__ volatile int squares[16];
#endif
__constant__ int small[4] = {0, 1, 2, 3};

extern "C" __global__ void look_up(int n, const unsigned char *x, int *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    if (blockIdx.x == 0) {
        if (threadIdx.x < 16 && squares[threadIdx.x] == 0)
            squares[threadIdx.x] = threadIdx.x * threadIdx.x;
        __syncthreads();
    }
#endif
    if (i >= n)
        return;
    int at = x[i] % 16;
    int square = squares[at];
#ifndef HONEST
    if (square == 0)  // this block came before the first
        square = at * at;
#endif
    y[i] = square + small[x[i] % 4];
}
