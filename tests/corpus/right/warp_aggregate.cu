// One atomic a warp for all its lanes that keep a value: the active mask, a leader, a broadcast.
__global__ void keep(const int *in, int *out, int *count, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, lane = threadIdx.x % 32;
    if (i < n && in[i] % 3 == 0) {
        unsigned active = __activemask();
        int leader = __ffs(active) - 1, base = 0;
        if (lane == leader) base = atomicAdd(count, __popc(active));
        base = __shfl_sync(active, base, leader);
        out[base + __popc(active & ((1u << lane) - 1))] = in[i];
    }
}
