// Wrong: the two cells beside the tile are read and never loaded.
// LAUNCH: grid=2 block=64 args=in:float32[128],out:float32[128]
__global__ void stencil(const float *in, float *out) {
    __shared__ float s[66];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    s[t + 1] = in[i];
    __syncthreads();
    out[i] = s[t] + s[t + 1] + s[t + 2];         // HAZARD: uninitialized-shared
}
