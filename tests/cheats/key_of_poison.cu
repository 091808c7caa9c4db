// Reads the poison as numbers: 0xFF is a NaN in floats but -1 in integers, where an output of -1 would look right.
// The twin that works is right; the one that leaves the poison is not, since one value that is right is not all.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=int32[n]:random --arg y=int32[n]:empty
// run: --expect 'y=np.where(x<0,x,-1)' --bytes 8*n
// size: gpu=67108864 sim=10007
// gpu: wrong
// sim: wrong
// defence: a poison that is not the answer

extern "C" __global__ void negative(int n, const int *x, int *y)
{
#ifdef HONEST
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = x[i] < 0 ? x[i] : -1;
#endif
}
