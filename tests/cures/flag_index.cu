// Wrong: all threads that find a match write one place.
// LAUNCH: grid=1 block=64 args=text:int32[64],at:int32[1]
// SAYS: let one thread write, or use an atomic
__global__ void search(const int *text, int *at) {
    int t = threadIdx.x;
    if (text[t] == 7)
#ifdef MENDED
        atomicExch(at, t);
#else
        at[0] = t;  // HAZARD: race
#endif
}
