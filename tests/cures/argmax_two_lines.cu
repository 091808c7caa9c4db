// Wrong: the best index of a block is kept by a comparison and a store.
// LAUNCH: grid=1 block=64 args=x:float32[64],best:int32[1]
// SAYS: let one thread write, or use an atomic, such as atomicAdd(), atomicMax() or atomicExch(), since threads update one element
__global__ void largest(const float *x, int *best) {
    __shared__ int s;
    int t = threadIdx.x;
    if (t == 0) s = 0;
    __syncthreads();
#ifdef MENDED
    atomicMax(&s, (int)x[t] * 64 + t);
#else
    int v = s;  // HAZARD: race
    s = max(v, (int)x[t] * 64 + t);  // HAZARD: race
#endif
    __syncthreads();
    if (t == 0) *best = s % 64;
}
