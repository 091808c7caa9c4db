// Wrong: threads count in shared memory without atomics.
// LAUNCH: grid=1 block=128 args=x:int32[512],h:int32[16]
// SAYS: let one thread write, or use an atomic, such as atomicAdd(), atomicMax() or atomicExch(), since threads update one element
__global__ void histogram(const int *x, int *h) {
    __shared__ int s[16];
    int t = threadIdx.x;
    if (t < 16) s[t] = 0;
    __syncthreads();
    for (int i = t; i < 512; i += 128) {
#ifdef MENDED
        atomicAdd(&s[x[i]], 1);
#else
        s[x[i]]++;  // HAZARD: race
#endif
    }
    __syncthreads();
    if (t < 16) h[t] = s[t];
}
