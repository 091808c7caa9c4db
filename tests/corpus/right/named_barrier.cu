// Two groups of 64 threads, each with a barrier of its own, then one for all.
__global__ void groups(const int *in, int *out) {
    __shared__ int s[128];
    int t = threadIdx.x, group = t / 64;
    s[t] = in[t];
    asm volatile("bar.sync %0, 64;" ::"r"(group + 1) : "memory");
    int v = s[group * 64 + 63 - t % 64];
    __syncthreads();
    s[t] = v;
    __syncthreads();
    out[t] = s[127 - t];
}
