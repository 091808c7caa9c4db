// Wrong: a block waits for another one's flag, which is not volatile: the compiler reads it once.
// LAUNCH: grid=2 block=1 args=x:int32[2],flag:int32[1]
// SAYS: read it in another launch
__global__ void pass(int *x, int *flag) {
#ifdef MENDED
    volatile int *word = flag;
#else
    int *word = flag;
#endif
    if (blockIdx.x == 0) {
        x[0] = 5;
        __threadfence();
        *word = 1;  // HAZARD: race
    } else {
        while (*word == 0) ;  // HAZARD: endless-loop
        __threadfence();
        x[1] = ((volatile int *)x)[0];
    }
}
