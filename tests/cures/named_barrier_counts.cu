// Wrong: one warp hands over its values at a named barrier, and both give it another number of threads.
// LAUNCH: grid=1 block=64 args=x:int32[64],y:int32[64]
// SAYS: give both lines the number of all threads that come to this barrier
#ifdef MENDED
#define COUNT "64"
#else
#define COUNT "32"
#endif
__global__ void hand_over(const int *x, int *y) {
    __shared__ int s[32];
    int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        asm volatile("bar.arrive 1, 64;" ::: "memory");        // HAZARD: divergent-barrier
    } else {
        asm volatile("bar.sync 1, " COUNT ";" ::: "memory");  // HAZARD: divergent-barrier
        y[t] = s[t - 32];
    }
}
