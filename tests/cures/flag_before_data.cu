// Wrong: a block sets its flag before it writes the value that the flag announces.
// LAUNCH: grid=5 block=32 args=x:int32[160],prefix:int32[5],flag:int32[5]
// SAYS: the thread has read a flag that was written before line 21
__global__ void chain(const int *x, int *prefix, volatile int *flag) {
    int b = blockIdx.x;
    if (threadIdx.x != 0) return;
    int sum = 0;
    for (int k = 0; k < 32; k++) sum += x[b * 32 + k];
    if (b > 0) {
        while (flag[b - 1] != 99) { }
        __threadfence();
        sum += prefix[b - 1];  // HAZARD: race
    }
#ifdef MENDED
    prefix[b] = sum;
    __threadfence();
    flag[b] = 99;
#else
    flag[b] = 99;
    __threadfence();
    prefix[b] = sum;
#endif
}
