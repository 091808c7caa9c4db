// A reduction without its barrier: refused with the race's line, and right with it.
// run: -k sum -g 1 -b 64 --arg 'x=int32[64]:random' --arg 'out=int32[1]:empty' --expect 'out=np.sum(x)'
// expect: refused: race
// then: -k sum -D SYNC='__syncthreads()' -g 1 -b 64 --arg 'x=int32[64]:random' --arg 'out=int32[1]:empty' --expect 'out=np.sum(x)'
#ifndef SYNC
#define SYNC
#endif
__global__ void sum(const int *x, int *out) {
    __shared__ int s[64];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    for (int d = 32; d; d /= 2) {
        if (threadIdx.x < d) s[threadIdx.x] += s[threadIdx.x + d];
        SYNC;
    }
    if (threadIdx.x == 0) *out = s[0];
}
