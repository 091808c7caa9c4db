// Stream compaction in order within a warp: ballot and population count.
// run: -g 1 -b 32 --arg 'in=int32[32]:arange' --arg 'out=int32[32]:zeros' --arg 'count=int32[1]:zeros'
//      --expect 'out=np.pad(in[in%3==0],(0,21))' --expect 'count=np.full(1,11)'
// expect: ok
__global__ void keep_thirds(const int *in, int *out, int *count) {
    unsigned lane = threadIdx.x;
    bool keep = in[lane] % 3 == 0;
    unsigned mask = __ballot_sync(~0u, keep);
    if (keep) out[__popc(mask & ((1u << lane) - 1))] = in[lane];
    if (lane == 0) *count = __popc(mask);
}
