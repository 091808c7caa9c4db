// Wrong: each lane synchronises with itself only.
// LAUNCH: grid=1 block=32 args=x:int32[32],y:int32[32]
// SAYS: its mask does not name both threads: let it name all lanes that exchange data, such as 0xffffffff
__global__ void swap(const int *x, int *y) {
    __shared__ int s[32];
    int lane = threadIdx.x;
    s[lane] = x[lane];
#ifdef MENDED
    __syncwarp(0xffffffffu);
#else
    __syncwarp(1u << lane);
#endif
    y[lane] = s[lane ^ 1];  // HAZARD: race
}
