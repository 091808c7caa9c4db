// A kernel that reads the clock.
// run: -k timed -g 1 -b 32 --arg 'x=float32[32]:random' --arg 'ticks=int64[1]:zeros' --expect 'x=x0*2'
// expect: ok
__global__ void timed(float *x, clock_t *ticks) {
    clock_t start = clock();
    x[threadIdx.x] *= 2;
    if (threadIdx.x == 0) *ticks = clock() - start;
}
