// Wrong: three warps come to a barrier that waits for the threads of two, so the last one waits for ever.
// LAUNCH: grid=1 block=96 args=x:int32[96],y:int32[96]
// SAYS: Give the barrier the number of threads that come to it
#ifdef MENDED
#define COUNT "96"
#else
#define COUNT "64"
#endif
__global__ void turned(const int *x, int *y) {
    __shared__ int s[96];
    s[threadIdx.x] = x[threadIdx.x];
    asm volatile("bar.sync 1, " COUNT ";" ::: "memory");  // HAZARD: divergent-barrier
    y[threadIdx.x] = s[threadIdx.x / 32 * 32 + 31 - threadIdx.x % 32];
}
