// Sixteen bytes a thread, as a copy kernel moves them.
// run: -g 2 -b 32 --arg 'in=uint32[256]:random' --arg 'out=uint32[256]:empty' --expect 'out=in'
// expect: ok
__global__ void copy16(const uint4 *__restrict__ in, uint4 *__restrict__ out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    out[i] = in[i];
}
