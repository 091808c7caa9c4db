// Wrong: a stencil in place reads neighbours that other threads of the block write.
// LAUNCH: grid=1 block=64 args=x:float32[66]
__global__ void smooth(float *x) {
    int i = threadIdx.x + 1;
    float mean = 0.5f * (x[i - 1] + x[i + 1]);   // HAZARD: race
    x[i] = mean;                                 // HAZARD: race
}
