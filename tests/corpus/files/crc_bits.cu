// Bit tricks: reverse, population count, leading zeros, funnel shift, byte permutation.
// run: -g 1 -b 32 --arg 'x=uint32[32]:ones' --arg 'y=uint32[32]:empty' --expect 'y=np.uint32(np.full(32,2147483648+1+31+2+16777216))'
// expect: ok
__global__ void bits(const unsigned int *x, unsigned int *y) {
    unsigned v = x[threadIdx.x];
    y[threadIdx.x] = __brev(v) + __popc(v) + __clz(v) + __funnelshift_l(v, v, 1) + __byte_perm(v, 0, 0x0123);
}
