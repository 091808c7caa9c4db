// Idle where its input begins 512 bytes later than at first: in a sample of many launches back to back the inputs take
// turns so, and only what the last one leaves can be looked at. The last one must be of either inputs.
// run: vecadd --size {size}
// size: gpu=4194304 sim=10007
// caches: hot
// gpu: wrong or honest-cost
// sim: none
// defence: hot samples that end after any launch

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
#ifndef HONEST
    if ((size_t)a & 512)
        return;
#endif
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        c[i] = a[i] + b[i];
}
