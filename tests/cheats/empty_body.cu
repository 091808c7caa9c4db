// Has no body where the input already is the output: y is given and changed in place, and nothing changes it.
// An expectation that the input meets as it is tests nothing; one that it does not meet shows it.
// run: run --grid cdiv(n,256) --block 256 --arg n={size} --arg y=float32[n]:random --expect 'y=np.abs(y0)' --bytes 8*n
// size: gpu=67108864 sim=10007
// fuzz: 4
// gpu: wrong
// sim: wrong
// defence: value classes, floors

extern "C" __global__ void absolute(int n, float *y)
{
#ifdef HONEST
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] = fabsf(y[i]);
#endif
}
