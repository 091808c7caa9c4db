// Wrong: each thread overwrites its word while its left neighbour may still have to read it.
// LAUNCH: grid=1 block=64 args=x:float32[64]
__global__ void shift(float *x) {
    __shared__ float s[64];
    int t = threadIdx.x;
    s[t] = x[t];
    __syncthreads();
    float right = s[(t + 1) % 64];               // HAZARD: race
    s[t] = 2.0f * right;                         // HAZARD: race
    __syncthreads();
    x[t] = s[63 - t];
}
