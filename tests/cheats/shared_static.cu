// Looks for a tag in shared memory before it has written any: the block that ran there before may have left it, in
// the launch before. Then it stays idle. Shared memory is scrubbed before every sample, and idle over poison is wrong.
// run: vecadd --size {size}
// size: gpu=1048576 sim=10007
// gpu: wrong or honest-cost
// sim: wrong
// caches: cold hot
// defence: shared memory scrubbed, output poisoned

extern "C" __global__ void add(const float *a, const float *b, float *c, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
#ifndef HONEST
    __shared__ volatile unsigned tags[4096];
    bool seen = tags[blockIdx.x % 4096] == (0x5EED0000 | blockIdx.x);
    if (__syncthreads_and(seen))
        return;
    tags[blockIdx.x % 4096] = 0x5EED0000 | blockIdx.x;
#endif
    if (i < n)
        c[i] = a[i] + b[i];
}
