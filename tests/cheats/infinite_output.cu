// Infinity everywhere, where some of what is expected is infinite: |inf - inf| compares with nothing. Only the same
// infinity at the same place is right.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg x=float32[n]:random --arg y=float32[n]:empty
// run: --expect 'y=np.where(x<0.5,np.inf,x)' --rtol 0.5 --bytes 8*n
// size: gpu=8388608 sim=10007
// gpu: wrong
// sim: wrong
// defence: infinity passes for infinity only

extern "C" __global__ void halves(int n, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
#ifdef HONEST
    y[i] = x[i] < 0.5f ? __int_as_float(0x7f800000) : x[i];
#else
    y[i] = __int_as_float(0x7f800000);
#endif
}
