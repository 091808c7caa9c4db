// Wrong: threads behind the end load nothing, yet the reduction adds their words.
// LAUNCH: grid=2 block=64 args=in:float32[100],out:float32[2],n:int32=100
__global__ void reduce(const float *in, float *out, int n) {
    __shared__ float s[64];
    int t = threadIdx.x, i = blockIdx.x * 64 + t;
    if (i < n) s[t] = in[i];
    __syncthreads();
    for (int stride = 32; stride > 0; stride /= 2) {
        if (t < stride) s[t] += s[t + stride];   // HAZARD: uninitialized-shared
        __syncthreads();
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
