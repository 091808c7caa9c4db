// Wrong: neighbours of one warp exchange values through shared memory without __syncwarp.
// LAUNCH: grid=1 block=32 args=x:float32[32]
__global__ void exchange(float *x) {
    __shared__ float s[32];
    s[threadIdx.x] = x[threadIdx.x];             // HAZARD: race
    x[threadIdx.x] = s[threadIdx.x ^ 1];         // HAZARD: race
}
