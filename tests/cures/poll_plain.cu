// Wrong: a flag is polled by plain reads.
// LAUNCH: grid=2 block=1 args=x:int32[64],flag:int32[1]
// SAYS: read it in each iteration through a volatile pointer or cuda::atomic_ref, and put __threadfence() after the loop
__global__ void pass(int *x, int *flag) {
    if (blockIdx.x == 0) {
        x[0] = 7;
        __threadfence();
        atomicExch(flag, 1);
    } else {
#ifdef MENDED
        while (atomicAdd(flag, 0) == 0) __nanosleep(20);
#else
        while (*flag == 0) __nanosleep(20);  // HAZARD: race
#endif
        __threadfence();
        x[1] = x[0];  // HAZARD: race
    }
}
