// The largest value and where it is, as one 64-bit word for the atomic.
// run: -g 'cdiv(n,64)' -b 64 --arg 'x=uint32[n]:arange' --arg 'best=uint64[1]:zeros' --arg n=300
//      --expect 'best=np.full(1,299*4294967296+299,dtype=np.uint64)'
// expect: ok
__global__ void argmax(const unsigned *x, unsigned long long *best, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long mine = i < n ? ((unsigned long long)x[i] << 32) | i : 0;
    for (int offset = 16; offset; offset >>= 1) {
        unsigned long long other = __shfl_xor_sync(~0u, mine, offset);
        mine = other > mine ? other : mine;
    }
    if (threadIdx.x % 32 == 0) atomicMax(best, mine);
}
