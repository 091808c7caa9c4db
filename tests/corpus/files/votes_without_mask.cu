// The warp's votes without a mask, and a step of an array's mean taken from them.
// run: -g 1 -b 64 --arg 'flags=int32[64]:i0%3' --arg 'counts=int32[64]:empty' --arg 'some=int32[64]:empty'
//     --expect 'counts=np.repeat(np.sum(np.reshape(flags>0,(2,32)),axis=1),32)' --expect some=2
// expect: ok
__global__ void votes(const int *flags, int *counts, int *some)
{
    int flag = flags[threadIdx.x];
    counts[threadIdx.x] = __popc(__ballot(flag > 0));
    some[threadIdx.x] = (__any(flag == 2) ? 1 : 0) + (__all(flag < 3) ? 1 : 0);
}
