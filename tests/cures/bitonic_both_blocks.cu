// Wrong: both threads of a pair, in two blocks, compare and swap.
// LAUNCH: grid=4 block=64 args=x:float32[256],j:int32=128,k:int32=256
// SAYS: both threads may swap the same two elements: let one of the two do it
__global__ void step(float *x, int j, int k) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, ixj = i ^ j;
#ifdef MENDED
    if (ixj > i)
#endif
    {
        if ((i & k) == 0) {
            if (x[i] < x[ixj]) {
                float v = x[i];
                x[i] = x[ixj];  // HAZARD: race
                x[ixj] = v;  // HAZARD: race
            }
        } else if (x[i] > x[ixj]) {
            float v = x[i];
            x[i] = x[ixj];  // HAZARD: race
            x[ixj] = v;  // HAZARD: race
        }
    }
}
