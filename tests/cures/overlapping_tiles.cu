// Wrong: tiles of two blocks overlap by one element.
// LAUNCH: grid=4 block=32 args=x:float32[132],y:float32[132]
// SAYS: let each block write to its own elements, or use an atomic
__global__ void tiles(const float *x, float *y) {
    int first = blockIdx.x * 32;
    for (int i = threadIdx.x; i < 33; i += 32)
#ifdef MENDED
        if (i < 32)
#endif
        y[first + i] = x[first + i] + first;  // HAZARD: race
}
