// Wrong: a sum is read while other blocks still add to it.
// LAUNCH: grid=4 block=64 args=x:float32[256],sum:float32[1],y:float32[256]
// SAYS: for the final value, read it in another launch
__global__ void centre(const float *x, float *sum, float *y) {
    int i = blockIdx.x * 64 + threadIdx.x;
    atomicAdd(sum, x[i]);
    __syncthreads();
#ifndef MENDED
    y[i] = x[i] - *sum / 256;  // HAZARD: race
#endif
}
